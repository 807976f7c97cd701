//! `fold`, and then the past: the server's own checkpoint has the crate's bytes, and every answer about a past
//! frontier is what the crate folds of the ops up to it.
use crate::{s, same, Api, Rng, World, R};
use car_sync::*;
use serde_json::{json, Value};

const FRONTIERS: u64 = 12;

/// Make a checkpoint of all ops, compare it with the crate's, then ask about random frontiers.
pub fn past(w: &World, api: &Api, r: &mut Rng, all: &[OpRecord]) -> R<Value> {
    let root = w.root();
    let own = Checkpoint::from_ops(all).map_err(s)?;
    let made = api.post(&format!("{root}/checkpoints"))?;
    same("checkpoint hash", &made["checkpoint_hash"], &json!(own.checkpoint_hash))?;
    same("state hash of the checkpoint", &made["state_hash"], &json!(own.state_hash))?;
    let text = api.text(&format!("{root}/checkpoints/{}", own.checkpoint_hash))?;
    if text != canonical_json(&serde_json::to_value(&own).map_err(s)?) {
        return Err("the checkpoint's text is not the crate's canonical text".into());
    }
    for _ in 0..FRONTIERS {
        let mut at = frontier_of(all);
        for seq in at.values_mut() {
            *seq -= r.below(*seq + 1);
        }
        check(w, api, all, &at)?;
    }
    Ok(json!({"checkpoint": own.checkpoint_hash, "frontiers": FRONTIERS}))
}

fn check(w: &World, api: &Api, all: &[OpRecord], at: &Frontier) -> R<()> {
    let (root, state) = (w.root(), fold_at(all, at));
    let at = serde_json::to_string(at).map_err(s)?;
    let got = api.get(&format!("{root}/state"), &[("at", &at)])?;
    same("state at a frontier", &got["state"], &serde_json::to_value(&state).map_err(s)?)?;
    for id in state.conversation_ids() {
        let got = api.get(&format!("{root}/transcript"), &[("conversation", &id), ("at", &at)])?;
        same("transcript at a frontier", &got["turns"], &serde_json::to_value(state.transcript(&id)).map_err(s)?)?;
        let got = api.get(&format!("{root}/resume"), &[("conversation", &id), ("at", &at)])?;
        same("resume at a frontier", &got["messages"], &serde_json::to_value(state.resume_messages(&id)).map_err(s)?)?;
    }
    for run in (0..12).map(|n| format!("run-{n}")) {
        let got = api.get(&format!("{root}/committed-run"), &[("agent", "a1"), ("run", &run), ("at", &at)])?;
        same("committed run at a frontier", &got["record"], &serde_json::to_value(state.committed_run("a1", &run)).map_err(s)?)?;
    }
    Ok(())
}
