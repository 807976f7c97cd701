//! Real devices pull, verify and fold what the server wrote for a client that keeps no op log.
use crate::hostile::{agree, settle};
use crate::{s, same, Api, World, R};
use car_sync::*;
use serde_json::{json, Value};

/// Hosted ops, turns and intents, written while devices write too; every device holds what the server answers.
pub fn hosted(w: &World, devices: &mut [SyncSession]) -> R<Value> {
    let (api, root, mut relay) = (Api::new(w), w.root(), w.relay());
    let run = format!("{}-hosted", w.run);
    let mut written = 0;
    for round in 0..3 {
        api.post_json(&format!("{root}/hosted/append"), &json!({"writer": "web", "ops": [
            {"surface": "knowledge", "payload": {"id": format!("hosted-{round}"), "body": "quote \" slash \\ \u{1F680}"}},
            {"surface": {"registry": {"kind": "config"}}, "payload": {"id": "shared", "round": round, "f": 1e16}},
            {"surface": "knowledge", "payload": {"n": round}, "scope": {"shared": {"org": "acme"}}},
        ]}))?;
        api.post_json(&format!("{root}/turns"), &json!({"writer": "phone-app", "conversation_id": "hosted", "role": "user", "content": format!("turn {round}")}))?;
        let status = ["pending", "failed", "committed"][round];
        api.post_json(&format!("{root}/intents"), &json!({"writer": "web", "agent_id": "agent-1", "run_id": run, "epoch": round + 4, "status": status}))?;
        written += 5;
        devices[round % devices.len()].append(Scope::Personal, Surface::Knowledge, json!({"id": "between", "round": round})).map_err(s)?;
        settle(&mut devices.iter_mut().collect::<Vec<_>>(), &mut relay)?;
        let held = agree(&devices.iter().collect::<Vec<_>>())?;
        same("state hash with hosted ops", &api.get(&format!("{root}/state/hash"), &[])?["state_hash"], &json!(held))?;
    }
    let state = devices[0].state();
    if state.committed_run("agent-1", &run).is_none() {
        return Err("a device does not know the run that a hosted writer committed".into());
    }
    let told = api.get(&format!("{root}/transcript"), &[("conversation", "hosted")])?;
    same("transcript of hosted turns", &told["turns"], &serde_json::to_value(state.transcript("hosted")).map_err(s)?)?;
    Ok(json!({"written": written, "turns": state.transcript("hosted").len()}))
}
