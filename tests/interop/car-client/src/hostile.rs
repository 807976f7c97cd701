//! A member of the scope, with a good token and an honest chain, that lies about the state: it uploads
//! self-consistent checkpoints (both hashes recompute, the frontier is right) of a state nobody wrote.
use crate::{s, write_mixed, World, R};
use car_sync::*;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::path::Path;

const REFUSED: &str = "checkpoint_state_mismatch";

/// False states are refused while nothing is stored, over a stored checkpoint, under its address, and
/// while devices bootstrap; whoever bootstraps holds what the honest devices hold.
pub fn hostile(w: &World) -> R<Value> {
    if w.loopback.is_some() {
        return Ok(json!("the loopback stores every self-consistent state"));
    }
    let dir = tempfile::tempdir().map_err(s)?;
    let mut relay = w.relay();
    let (mut a, mut b) = (w.open(dir.path(), "a")?, w.open(dir.path(), "b")?);
    let (mut liar, mut straggler) = (w.open(dir.path(), "liar")?, w.open(dir.path(), "late")?);
    for (device, name) in [(&mut a, "a"), (&mut b, "b"), (&mut liar, "liar")] {
        write_mixed(device, name, 45)?;
        device.append(Scope::Personal, Surface::Intent, Intent::new("agent-1", format!("run-{name}"), 2, IntentStatus::Committed).payload()).map_err(s)?;
    }
    settle(&mut [&mut a, &mut b, &mut liar], &mut relay)?;
    let mut lies = refuse_lies(w, &Checkpoint::from_ops(liar.ops()).map_err(s)?)?;

    // nothing was stored, so a newcomer replays from the beginning
    if relay.checkpoint_get().map_err(s)?.is_some() {
        return Err("a false checkpoint is served".into());
    }
    let mut first = bootstrap(w, dir.path(), "first")?;
    if first.base().is_some() {
        return Err("a newcomer bootstrapped from a false checkpoint".into());
    }
    settle(&mut [&mut first, &mut a, &mut b, &mut liar], &mut relay)?;
    agree(&[&first, &a, &b, &liar])?;

    // now there is an honest checkpoint, and ops below it are gone
    straggler.append(Scope::Personal, Surface::Knowledge, json!({"id": "late-write"})).map_err(s)?;
    let honest = a.publish_checkpoint(&mut relay).map_err(s)?.ok_or("no checkpoint published")?;
    if relay.gc().map_err(s)?.total() == 0 {
        return Err("gc dropped nothing".into());
    }
    write_mixed(&mut liar, "liar", 12)?;
    liar.pump(&mut relay).map_err(s)?;
    lies += refuse_lies(w, &Checkpoint::from_ops(liar.ops()).map_err(s)?)?;

    // a false state under the address of the honest checkpoint changes nothing either
    let mut disguised = honest.clone();
    disguised.state = falsified(&honest.state)?.remove(0).1;
    if relay.checkpoint_put(liar.device_id(), &disguised).map_err(s)? {
        return Err("a false state was stored under an honest address".into());
    }
    served(&mut relay, &honest)?;

    // liars and newcomers at once
    let truth = Checkpoint::from_ops(liar.ops()).map_err(s)?;
    let (mut newcomers, told) = std::thread::scope(|threads| -> R<(Vec<SyncSession>, usize)> {
        let liars: Vec<_> = (0..2).map(|_| threads.spawn(|| refuse_lies(w, &truth))).collect();
        let path = dir.path();
        let joining: Vec<_> = (0..4).map(|n| threads.spawn(move || bootstrap(w, path, &format!("new{n}")))).collect();
        let told = liars.into_iter().map(|t| t.join().map_err(|_| "a liar panicked".to_string())?).sum::<R<usize>>()?;
        let joined = joining.into_iter().map(|t| t.join().map_err(|_| "a newcomer panicked".to_string())?).collect::<R<Vec<_>>>()?;
        Ok((joined, told))
    })?;
    lies += told;
    if !straggler.rebase(&mut relay).map_err(s)? {
        return Err("the straggler did not rebase".into());
    }
    newcomers.push(straggler);
    for device in &newcomers {
        let base = device.base().ok_or("a newcomer found no checkpoint")?;
        if base != &honest {
            return Err(format!("{} bootstrapped from {}, not from the honest {}", device.device_id(), base.checkpoint_hash, honest.checkpoint_hash));
        }
    }
    served(&mut relay, &honest)?;
    let bootstrapped = newcomers.len();
    let mut everyone: Vec<&mut SyncSession> = newcomers.iter_mut().collect();
    everyone.extend([&mut a, &mut b, &mut liar, &mut first]);
    settle(&mut everyone, &mut relay)?;
    let everyone: Vec<&SyncSession> = everyone.iter().map(|device| &**device).collect();
    Ok(json!({"lies_refused": lies, "bootstrapped": bootstrapped, "state_hash": agree(&everyone)?}))
}

/// Upload every lie that can be told at a checkpoint's frontier; how many, each refused for its state.
fn refuse_lies(w: &World, truth: &Checkpoint) -> R<usize> {
    let mut relay = w.relay();
    let lies = falsified(&truth.state)?;
    for (name, state) in &lies {
        let lie = Checkpoint::assemble(truth.frontier.clone(), truth.scopes.clone(), state.clone());
        lie.verify().map_err(|e| format!("{name} is not self-consistent: {e}"))?;
        match relay.checkpoint_put(&w.dev("liar"), &lie) {
            Err(e) if s(&e).contains("422") && s(&e).contains(REFUSED) => {}
            other => return Err(format!("{name} should be refused as {REFUSED}, got {other:?}")),
        }
    }
    Ok(lies.len())
}

/// States that differ from the true one, with a word for how.
fn falsified(truth: &SyncState) -> R<Vec<(&'static str, SyncState)>> {
    let edited = |edit: &dyn Fn(&mut SyncState) -> Option<()>| -> R<SyncState> {
        let mut state = truth.clone();
        edit(&mut state).ok_or("the state lacks what the lie is about")?;
        Ok(state)
    };
    Ok(vec![
        ("a changed fact", edited(&|state| {
            state.logs.get_mut("knowledge")?.values_mut().next()?.payload = json!({"id": "fact-3", "body": "never written"});
            Some(())
        })?),
        ("a dropped turn", edited(&|state| state.logs.get_mut("conversation")?.pop_first().map(|_| ()))?),
        ("an invented commit", edited(&|state| {
            let agent = state.intents.get_mut("agent-1")?;
            let mut record = agent.committed_runs.values().next()?.clone();
            record.payload["id"] = json!("never-run");
            agent.committed_runs.insert("id:never-run".into(), record);
            Some(())
        })?),
        ("a forgotten commit", edited(&|state| state.intents.get_mut("agent-1")?.committed_runs.pop_first().map(|_| ()))?),
        ("a raised fence", edited(&|state| {
            state.intents.get_mut("agent-1")?.fencing_epoch += 1;
            Some(())
        })?),
        ("an older registry record", edited(&|state| {
            state.registries.get_mut("registry:config")?.values_mut().next()?.hlc.wall_ms -= 1;
            Some(())
        })?),
        ("nothing at all", SyncState::default()),
    ])
}

pub fn bootstrap(w: &World, dir: &Path, name: &str) -> R<SyncSession> {
    let (journal, checkpoints) = (dir.join(format!("{name}.jsonl")), dir.join(format!("{name}-ckpt")));
    SyncSession::bootstrap(w.dev(name), &journal, &checkpoints, &mut w.relay(), system_clock()).map_err(s)
}

pub fn settle(devices: &mut [&mut SyncSession], relay: &mut NetworkRelay) -> R<()> {
    for _ in 0..2 {
        for device in devices.iter_mut() {
            device.pump(relay).map_err(s)?;
        }
    }
    Ok(())
}

pub fn agree(devices: &[&SyncSession]) -> R<String> {
    let hashes: BTreeSet<String> = devices.iter().map(|device| device.state_hash()).collect();
    if hashes.len() > 1 {
        return Err(format!("devices diverged: {hashes:?}"));
    }
    hashes.into_iter().next().ok_or_else(|| "no device".into())
}

fn served(relay: &mut NetworkRelay, honest: &Checkpoint) -> R<()> {
    match relay.checkpoint_get().map_err(s)? {
        Some(latest) if &latest == honest => Ok(()),
        other => Err(format!("the latest checkpoint is not the honest one: {:?}", other.map(|c| c.checkpoint_hash))),
    }
}
