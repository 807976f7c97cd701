//! A scope in which no device ever publishes a checkpoint: an admin's GC makes the ones that newcomers bootstrap
//! from and stragglers rebase onto.
use crate::hostile::{agree, bootstrap, settle};
use crate::{s, write_mixed, Api, World, R};
use car_sync::*;
use serde_json::{json, Value};

const ROUNDS: usize = 3;

/// Every round: devices write and settle, the server collects, a straggler is told and rebases, a newcomer bootstraps.
pub fn unpublished(w: &World) -> R<Value> {
    if w.loopback.is_some() {
        return Ok(json!("the loopback makes no checkpoint of its own"));
    }
    let dir = tempfile::tempdir().map_err(s)?;
    let mut relay = w.relay();
    let mut devices = vec![w.open(dir.path(), "a")?, w.open(dir.path(), "b")?];
    let mut bases = Vec::new();
    let mut dropped = 0;
    for round in 0..ROUNDS {
        for (device, name) in devices.iter_mut().zip(["a", "b"]) {
            write_mixed(device, &format!("{name}{round}"), 40)?;
        }
        settle(&mut devices.iter_mut().collect::<Vec<_>>(), &mut relay)?;
        let mut straggler = w.open(dir.path(), &format!("late{round}"))?;
        straggler.append(Scope::Personal, Surface::Knowledge, json!({"id": format!("late-{round}")})).map_err(s)?;
        if relay.gc().map_err(s)?.total() != 0 {
            return Err("GC on the wire went past what stored checkpoints cover".into());
        }
        dropped += collected(w)?;
        match straggler.pump(&mut relay) {
            Err(SessionError::Relay(RelayError::FrontierTruncated { .. })) => {}
            other => return Err(format!("the straggler should be told FrontierTruncated, got {other:?}")),
        }
        if !straggler.rebase(&mut relay).map_err(s)? {
            return Err("the straggler did not rebase".into());
        }
        let newcomer = bootstrap(w, dir.path(), &format!("new{round}"))?;
        let base = newcomer.base().ok_or("the newcomer found no checkpoint")?;
        base.verify().map_err(s)?;
        bases.push(base.checkpoint_hash.clone());
        devices.extend([straggler, newcomer]);
        settle(&mut devices.iter_mut().collect::<Vec<_>>(), &mut relay)?;
        let held = agree(&devices.iter().collect::<Vec<_>>())?;
        let told = Api::new(w).get(&format!("{}/state/hash", w.root()), &[])?["state_hash"].clone();
        if told != json!(held) {
            return Err(format!("devices hold {held}, the server answers {told}"));
        }
    }
    bases.dedup();
    if bases.len() != ROUNDS {
        return Err(format!("each round should make a checkpoint of its own: {bases:?}"));
    }
    Ok(json!({"dropped": dropped, "bases": bases, "devices": devices.len()}))
}

fn collected(w: &World) -> R<u64> {
    let report = Api::new(w).post(&format!("{}/gc", w.root()))?;
    let dropped: u64 = report["dropped"].as_object().ok_or("no GC report")?.values().filter_map(Value::as_u64).sum();
    if dropped == 0 {
        return Err(format!("the admin's GC dropped nothing: {report}"));
    }
    Ok(dropped)
}
