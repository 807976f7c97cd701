//! Journals, run ledgers and contexts ride on registry ops: devices write them, hosted writers write them, every device
//! pulls, verifies and folds both, and what the server tells of them stays as it is when their ops are collected.
use crate::hostile::{agree, bootstrap, settle};
use crate::{s, same, Api, World, R};
use car_sync::*;
use serde_json::{json, Value};
use sha2::{Digest, Sha256};

const ROUNDS: usize = 3;
const WRITER: &str = "web";

/// Two devices and a hosted writer on one session and one run; a third device takes others' ids in the registry.
pub fn projections(w: &World) -> R<Value> {
    if w.loopback.is_some() {
        return Ok(json!("the loopback has no projections"));
    }
    let (api, root, mut relay) = (Api::new(w), w.root(), w.relay());
    let dir = tempfile::tempdir().map_err(s)?;
    let mut devices = vec![w.open(dir.path(), "mac")?, w.open(dir.path(), "phone")?, w.open(dir.path(), "thief")?];
    let (session, run) = (format!("{}-session", w.run), format!("{}-run", w.run));
    let (mut queued, mut said) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for (place, device) in devices.iter_mut().take(2).enumerate() {
            let (text, pos) = (format!("{place}-{round}"), round * 10 + place);
            let entry = json!({"op": "enqueue", "queue": "steer", "text": text});
            append(device, "journal", json!({"session": session, "entry": entry}))?;
            append(device, "context", put(&session, &text, pos))?;
            queued.push(text.clone());
            said.push((pos, text));
        }
        settle(&mut devices.iter_mut().collect::<Vec<_>>(), &mut relay)?;
        let (text, pos) = (format!("hosted-{round}"), round * 10 + 5);
        let mut body = put(&session, &text, pos);
        body.as_object_mut().unwrap().remove("session");
        api.post_json(&format!("{root}/contexts/ops"), &json!({"writer": WRITER, "session": session, "ops": [body]}))?;
        let entry = json!({"op": "enqueue", "queue": "steer", "text": text});
        api.post_json(&format!("{root}/journals/append"), &json!({"writer": WRITER, "session": session, "entries": [entry]}))?;
        queued.push(text.clone());
        said.push((pos, text));
        let text = format!("appended-{round}");
        let payload = with_id(WRITER, put(&session, &text, pos + 1))?;
        let appended = json!({"surface": {"registry": {"kind": "foldpoint.context"}}, "payload": payload});
        api.post_json(&format!("{root}/hosted/append"), &json!({"writer": WRITER, "ops": [appended]}))?;
        said.push((pos + 1, text));
        record(w, &api, &mut devices, &run, round)?;
        take_ids(&mut devices)?;
        settle(&mut devices.iter_mut().collect::<Vec<_>>(), &mut relay)?;
        let held = agree(&devices.iter().collect::<Vec<_>>())?;
        same("state hash with projections", &api.get(&format!("{root}/state/hash"), &[])?["state_hash"], &json!(held))?;
    }
    let hosted = recomputed(&devices[0])?;
    said.sort();
    let told = tell(&api, &root, &session, &run)?;
    same("what is queued", &told["queue"], &json!(queued))?;
    same("what a context holds", &told["said"], &json!(said.iter().map(|(_, text)| text).collect::<Vec<_>>()))?;
    same("how far the run is", &told["run"]["next_seq"], &json!(ROUNDS))?;
    if api.get(&format!("{root}/conversations"), &[])?["conversations"] != json!([]) {
        return Err("a projection is listed as a conversation".into());
    }
    let dropped = api.post(&format!("{root}/gc"))?;
    if dropped["dropped"].as_object().is_none_or(|by_device| by_device.is_empty()) {
        return Err(format!("nothing was collected: {dropped}"));
    }
    same("what is told after a collection", &tell(&api, &root, &session, &run)?, &told)?;
    devices.push(bootstrap(w, dir.path(), "newcomer")?);
    settle(&mut devices.iter_mut().collect::<Vec<_>>(), &mut relay)?;
    agree(&devices.iter().collect::<Vec<_>>())?;
    Ok(json!({"queued": queued.len(), "said": said.len(), "hosted": hosted, "dropped": dropped["dropped"]}))
}

/// How many ops of the hosted writer a device holds: each payload has the id that its content and the writer's name give.
fn recomputed(device: &SyncSession) -> R<usize> {
    let hosted: Vec<&OpRecord> = device.ops().iter().filter(|op| op.device_id.starts_with("hosted-")).collect();
    for op in &hosted {
        let mut content = op.payload.clone();
        let id = content.as_object_mut().and_then(|members| members.remove("id")).ok_or("a payload without an id")?;
        same("the id of a hosted payload", &id, &with_id(WRITER, content)?["id"])?;
    }
    if hosted.is_empty() {
        return Err("a device pulled nothing of the hosted writer".into());
    }
    Ok(hosted.len())
}

/// The first record by a device, the next by the hosted writer, the last by the other device.
fn record(w: &World, api: &Api, devices: &mut [SyncSession], run: &str, round: usize) -> R<()> {
    let context = json!({"token_budget": 10, "fragments": []});
    let event = match round {
        0 => json!({"event": "run_started", "run_id": run, "agent_id": "agent-1"}),
        1 => json!({"event": "context_built", "run_id": run, "turn_id": "t1", "context": context}),
        _ => json!({"event": "model_requested", "run_id": run, "turn_id": "t1", "step": 0, "model": "m"}),
    };
    let recorded = json!({"seq": round, "occurred_at_ms": 1, "event": event});
    if round != 1 {
        return append(&mut devices[round % 2], "run_ledger", json!({"run_id": run, "record": recorded}));
    }
    let body = json!({"writer": WRITER, "run_id": run, "records": [recorded]});
    let told = api.post_json(&format!("{}/run-ledgers/append", w.root()), &body)?;
    same("a hosted record", &told["statuses"][0]["status"], &json!("folded"))
}

/// The third device writes under the ids of what it holds, at later stamps.
fn take_ids(devices: &mut [SyncSession]) -> R<()> {
    let thief = &mut devices[2];
    let others: Vec<OpRecord> = thief.ops().iter().filter(|op| op.device_id != thief.device_id()).cloned().collect();
    for op in others.iter().rev().take(4) {
        let mut payload = op.payload.clone();
        payload["entry"] = json!({"op": "unrewind"});
        thief.append(Scope::Personal, op.surface.clone(), payload).map_err(s)?;
    }
    Ok(())
}

fn put(session: &str, text: &str, pos: usize) -> Value {
    let body = json!({"form": "inline", "text": text, "tool_call_id": null, "is_error": false});
    let message = json!({"partition": "history", "role": "user", "body": body, "tool_calls": [], "tokens": 1});
    json!({"session": session, "op": "put", "message_id": text, "pos": pos, "message": message})
}

/// The id is the SHA-256 of the canonical JSON of the author and the payload; these payloads' compact JSON is canonical.
fn with_id(author: &str, mut payload: Value) -> R<Value> {
    let material = serde_json::to_string(&json!([author, payload])).map_err(s)?;
    let id: String = Sha256::digest(material).iter().map(|byte| format!("{byte:02x}")).collect();
    payload["id"] = json!(id);
    Ok(payload)
}

fn append(device: &mut SyncSession, kind: &str, payload: Value) -> R<()> {
    let payload = with_id(device.device_id(), payload)?;
    device.append(Scope::Personal, Surface::Registry { kind: format!("foldpoint.{kind}") }, payload).map_err(s)?;
    Ok(())
}

fn tell(api: &Api, root: &str, session: &str, run: &str) -> R<Value> {
    let journal = api.get(&format!("{root}/journals"), &[("session", session)])?;
    let context = api.get(&format!("{root}/contexts"), &[("session", session)])?;
    let ledger = api.get(&format!("{root}/run-ledgers"), &[("run", run)])?;
    let said: Vec<&Value> = context["messages"].as_array().ok_or("no messages")?.iter().map(|message| &message["body"]["text"]).collect();
    Ok(json!({"queue": journal["steer_queue"], "said": said, "run": ledger["state"]}))
}
