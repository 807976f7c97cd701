//! Real CAR devices against a sync server.
//!
//! `car-client SCENARIO… ` with SYNC_BASE (e.g. http://127.0.0.1:8000/sync), SYNC_TOKEN, SYNC_SCOPE;
//! with SYNC_LOOPBACK=1 the same scenarios run against car-sync's own reference server, which
//! proves the scenarios themselves. Prints one JSON line per scenario; exits 1 if any fails.
//! `fold` also asks the server's own read API and compares every answer with what the crate computes
//! from the same ops (SEED picks the ops; SYNC_API is the API's base, e.g. http://127.0.0.1:8000/v1).
mod hosted;
mod hostile;
mod past;
mod projections;
mod unlocked;
mod unpublished;
mod transport {
    include!(concat!(env!("OUT_DIR"), "/sync_transport.rs"));
}

use car_sync::*;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

type R<T> = Result<T, String>;
fn s<E: std::fmt::Display>(e: E) -> String {
    e.to_string()
}

/// The device's transport to several server processes, each call to the next one.
struct Spread {
    servers: Vec<transport::ParsleeSyncTransport>,
    turn: AtomicUsize,
}

impl Spread {
    fn next(&self) -> &transport::ParsleeSyncTransport {
        &self.servers[self.turn.fetch_add(1, Ordering::Relaxed) % self.servers.len()]
    }
}

type T<V> = Result<V, TransportError>;

impl SyncTransport for Spread {
    fn enroll(&self, s: &str, d: &str) -> T<RosterEntry> {
        self.next().enroll(s, d)
    }
    fn push(&self, s: &str, d: &str, ops: &[OpRecord]) -> T<PushOutcome> {
        self.next().push(s, d, ops)
    }
    fn pull(&self, s: &str, d: &str, since: &Frontier) -> T<PullResult> {
        self.next().pull(s, d, since)
    }
    fn ack(&self, s: &str, d: &str, f: Hlc) -> T<AckOutcome> {
        self.next().ack(s, d, f)
    }
    fn checkpoint_put(&self, s: &str, d: &str, c: &Checkpoint) -> T<bool> {
        self.next().checkpoint_put(s, d, c)
    }
    fn checkpoint_get(&self, s: &str) -> T<Option<Checkpoint>> {
        self.next().checkpoint_get(s)
    }
    fn roster(&self, s: &str) -> T<Vec<RosterEntry>> {
        self.next().roster(s)
    }
    fn stable_frontier(&self, s: &str) -> T<Option<Hlc>> {
        self.next().stable_frontier(s)
    }
    fn gc(&self, s: &str) -> T<GcReport> {
        self.next().gc(s)
    }
    fn lease_acquire(&self, s: &str, a: &str, d: &str, ttl: u64) -> T<LeaseWire> {
        self.next().lease_acquire(s, a, d, ttl)
    }
    fn lease_renew(&self, s: &str, a: &str, d: &str, e: u64, ttl: u64) -> T<LeaseWire> {
        self.next().lease_renew(s, a, d, e, ttl)
    }
    fn lease_release(&self, s: &str, a: &str, d: &str, e: u64) -> T<LeaseWire> {
        self.next().lease_release(s, a, d, e)
    }
    fn lease_current(&self, s: &str, a: &str) -> T<LeaseWire> {
        self.next().lease_current(s, a)
    }
}

impl OrgKeyTransport for Spread {
    fn publish_wrapped(&self, s: &str, w: &WrappedOrgKey) -> T<()> {
        self.next().publish_wrapped(s, w)
    }
    fn fetch_wrapped(&self, s: &str, e: u64, r: &str) -> T<Option<WrappedOrgKey>> {
        self.next().fetch_wrapped(s, e, r)
    }
    fn fetch_wrapped_for(&self, s: &str, r: &str) -> T<Vec<WrappedOrgKey>> {
        self.next().fetch_wrapped_for(s, r)
    }
    fn publish_pubkey(&self, s: &str, a: &str, h: &str) -> T<()> {
        self.next().publish_pubkey(s, a, h)
    }
    fn fetch_pubkeys(&self, s: &str) -> T<Vec<MemberPublicKey>> {
        self.next().fetch_pubkeys(s)
    }
}

struct World {
    base: String,
    token: String,
    scope: String,
    loopback: Option<LoopbackTransport>,
    run: String,
}

impl World {
    fn sync(&self) -> Arc<dyn SyncTransport> {
        match &self.loopback {
            Some(l) => Arc::new(l.clone()),
            None => Arc::new(self.http(&self.token)),
        }
    }
    fn http(&self, token: &str) -> Spread {
        let one = |base: &str| {
            let t = token.to_string();
            transport::ParsleeSyncTransport::new(base, Arc::new(move || Some(t.clone()))).unwrap()
        };
        Spread { servers: self.base.split(',').map(one).collect(), turn: AtomicUsize::new(0) }
    }
    fn org(&self) -> Arc<dyn OrgKeyTransport> {
        match &self.loopback {
            Some(l) => Arc::new(l.clone()),
            None => Arc::new(self.http(&self.token)),
        }
    }
    fn relay(&self) -> NetworkRelay {
        NetworkRelay::new(self.sync(), self.scope.clone())
    }
    fn leases(&self) -> NetworkLeaseCoordinator {
        NetworkLeaseCoordinator::new(self.sync(), self.scope.clone())
    }
    fn root(&self) -> String {
        let slug: String = self.scope.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' }).collect();
        format!("scopes/{slug}")
    }
    fn dev(&self, name: &str) -> String {
        format!("{}-{}", self.run, name)
    }
    fn open(&self, dir: &Path, name: &str) -> R<SyncSession> {
        SyncSession::open(self.dev(name), &dir.join(format!("{name}.jsonl")), &dir.join(format!("{name}-ckpt")), system_clock()).map_err(s)
    }
}

fn write_mixed(session: &mut SyncSession, who: &str, n: usize) -> R<()> {
    for i in 0..n {
        let (surface, payload) = match i % 9 {
            0 => (Surface::Conversation, Turn::user_payload("c1", &format!("{who} asks {i} — naïve ☕ \u{1F680}"), 1000 + i as u64)),
            1 => (Surface::Conversation, Turn::assistant_payload("c1", &format!("{who} answers {i}"), vec![json!({"id": format!("{who}-t{i}"), "name": "search", "arguments": {"q": i, "x": 0.1 + i as f64}})], 1001 + i as u64)),
            2 => (Surface::Conversation, Turn::tool_payload("c1", &format!("{who}-t{}", i - 1), "result", 1002 + i as u64)),
            3 => (Surface::Knowledge, json!({"id": format!("fact-{}", i % 30), "body": format!("{who} {i}"), "w": 1e-7, "big": 9007199254740993u64})),
            4 => (Surface::Declagent, json!({"id": format!("agent-{}", i % 5), "rev": format!("{who}{i}")})),
            5 => (Surface::Registry { kind: "config".into() }, json!({"id": format!("k{}", i % 4), "value": {"by": who, "i": i}})),
            6 => (Surface::Routing, json!({"agent": "x", "ok": true})),
            7 => (Surface::Trajectory, json!({"id": format!("{who}-tr-{i}"), "timestamp": i})),
            _ => (Surface::Run, json!({"id": format!("run-{i}"), "agent_id": "a1", "timestamp": i})),
        };
        session.append(Scope::Personal, surface, payload).map_err(s)?;
    }
    Ok(())
}

/// Three devices write concurrently on every surface, sync, and converge to one state.
fn converge(w: &World) -> R<Value> {
    let dir = tempfile::tempdir().map_err(s)?;
    let mut devices = Vec::new();
    for name in ["mac", "phone", "server"] {
        let mut d = w.open(dir.path(), name)?;
        write_mixed(&mut d, name, 90)?;
        for e in 1..4u64 {
            for status in [IntentStatus::Pending, IntentStatus::Committed, IntentStatus::Failed] {
                d.append(Scope::Personal, Surface::Intent, Intent::new("agent-1", format!("run-{name}-{e}-{status:?}"), e, status).payload()).map_err(s)?;
            }
        }
        devices.push(d);
    }
    let mut relay = w.relay();
    let mut pushed = 0;
    for _ in 0..2 {
        for d in devices.iter_mut() {
            let r = d.pump(&mut relay).map_err(s)?;
            pushed += r.pushed;
        }
    }
    let hashes: BTreeSet<String> = devices.iter().map(|d| d.state_hash()).collect();
    if hashes.len() != 1 {
        return Err(format!("devices diverged: {hashes:?}"));
    }
    // a re-push of everything is deduplicated
    let own: Vec<OpRecord> = devices[0].ops().iter().filter(|o| o.device_id == devices[0].device_id()).cloned().collect();
    let again = relay.push(devices[0].device_id(), &own).map_err(s)?;
    if again.accepted != 0 || again.deduped != own.len() {
        return Err(format!("re-push not deduplicated: {again:?}"));
    }
    let roster = relay.roster().map_err(s)?;
    for d in &devices {
        if !roster.iter().any(|r| r.device_id == d.device_id() && r.acked.is_some()) {
            return Err(format!("{} missing or unacked on the roster", d.device_id()));
        }
    }
    let hosted = if w.loopback.is_some() { Value::Null } else { hosted::hosted(w, &mut devices)? };
    let st = devices[0].state();
    Ok(json!({"hosted": hosted, "pushed": pushed, "state_hash": hashes.iter().next(), "ops": devices[0].ops().len(),
        "committed": st.committed_run_ids("agent-1"), "fencing_epoch": st.fencing_epoch("agent-1"),
        "resume_c1": st.resume_messages("c1").len(), "transcript_c1": st.transcript("c1").len()}))
}

/// Forks, gaps, foreign ops and tampering are refused; what was good before the bad op stays.
fn refuse(w: &World) -> R<Value> {
    let mut relay = w.relay();
    let id = w.dev("honest");
    let mut log = DeviceLog::with_wall_clock(id.clone(), system_clock());
    let ops: Vec<OpRecord> = (0..4).map(|i| log.append(Scope::Personal, Surface::Knowledge, json!({"id": format!("{id}-{i}")}))).collect();
    relay.push(&id, &ops[..2]).map_err(s)?;
    if relay.push(&id, &ops[3..]).is_ok() {
        return Err("gap accepted".into());
    }
    let mut other = DeviceLog::with_wall_clock(id.clone(), system_clock());
    let fork = other.append(Scope::Personal, Surface::Knowledge, json!({"id": "fork"}));
    if relay.push(&id, std::slice::from_ref(&fork)).is_ok() {
        return Err("fork accepted".into());
    }
    let mut tampered = ops[2].clone();
    tampered.payload = json!({"id": "tampered"});
    if relay.push(&id, std::slice::from_ref(&tampered)).is_ok() {
        return Err("tampered payload accepted".into());
    }
    if relay.push(&w.dev("thief"), &ops[2..3]).is_ok() {
        return Err("foreign ops accepted".into());
    }
    // a batch whose third op is bad keeps its good prefix
    let mut bad_tail = ops[3].clone();
    bad_tail.op_id = "op-00000000000000000000000000000000".into();
    let _ = relay.push(&id, &[ops[2].clone(), bad_tail]);
    let out = relay.push(&id, &ops).map_err(s)?;
    if out.deduped != 3 || out.accepted != 1 {
        return Err(format!("prefix of a failed batch was lost: {out:?}"));
    }
    Ok(json!({"outcome": out}))
}

/// Ack, publish a checkpoint, collect garbage, bootstrap a new device, rebase a straggler.
fn compact(w: &World) -> R<Value> {
    let dir = tempfile::tempdir().map_err(s)?;
    let mut relay = w.relay();
    let mut a = w.open(dir.path(), "a")?;
    let mut b = w.open(dir.path(), "b")?;
    let mut straggler = w.open(dir.path(), "late")?;
    write_mixed(&mut a, "a", 60)?;
    write_mixed(&mut b, "b", 60)?;
    for _ in 0..2 {
        a.pump(&mut relay).map_err(s)?;
        b.pump(&mut relay).map_err(s)?;
    }
    straggler.append(Scope::Personal, Surface::Knowledge, json!({"id": "late-write"})).map_err(s)?;
    let ckpt = a.publish_checkpoint(&mut relay).map_err(s)?.ok_or("no checkpoint published")?;
    let gc = relay.gc().map_err(s)?;
    if gc.total() == 0 {
        return Err("gc dropped nothing".into());
    }
    match straggler.pump(&mut relay) {
        Err(SessionError::Relay(RelayError::FrontierTruncated { .. })) => {}
        // the loopback reference flattens this signal into an io error
        Err(SessionError::Relay(RelayError::Io(e))) if w.loopback.is_some() && e.to_string().contains("GC'd space") => {}
        other => return Err(format!("straggler should be told FrontierTruncated, got {other:?}")),
    }
    if !straggler.rebase(&mut relay).map_err(s)? {
        return Err("straggler did not rebase".into());
    }
    straggler.pump(&mut relay).map_err(s)?;
    let mut fresh = SyncSession::bootstrap(w.dev("fresh"), &dir.path().join("fresh.jsonl"), &dir.path().join("fresh-ckpt"), &mut relay, system_clock()).map_err(s)?;
    for _ in 0..2 {
        for d in [&mut a, &mut b, &mut straggler, &mut fresh] {
            d.pump(&mut relay).map_err(s)?;
        }
    }
    let hashes: BTreeSet<String> = [&a, &b, &straggler, &fresh].iter().map(|d| d.state_hash()).collect();
    if hashes.len() != 1 {
        return Err(format!("diverged after compaction: {hashes:?}"));
    }
    // a checkpoint of some other chain that merely names this device is refused
    let mut imposter = DeviceLog::with_wall_clock(w.dev("a"), system_clock());
    let forged: Vec<OpRecord> = (0..200).map(|i| imposter.append(Scope::Personal, Surface::Knowledge, json!({"id": format!("f{i}")}))).collect();
    let forged = Checkpoint::from_ops(&forged).map_err(s)?;
    if relay.checkpoint_put(&w.dev("a"), &forged).is_ok() {
        return Err("forged checkpoint accepted".into());
    }
    Ok(json!({"dropped": gc.total(), "checkpoint": ckpt.checkpoint_hash, "state_hash": hashes.iter().next()}))
}

/// A small deterministic generator, so that a failing seed can be run again.
struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn pick<'a, T>(&mut self, xs: &'a [T]) -> &'a T {
        &xs[self.below(xs.len() as u64) as usize]
    }
}

fn random_payload(r: &mut Rng, who: &str, i: usize) -> (Surface, Value) {
    let conv = *r.pick(&["", "c/1", "naïve ☕", "c2"]);
    let run = format!("run-{}", r.below(12));
    let agent = *r.pick(&["a1", "a 2", ""]);
    let odd = *r.pick(&["plain", "quote \" slash \\ tab \t", "émoji \u{1F680}", "", "\u{7f}\u{1}"]);
    match r.below(14) {
        0 | 1 => (Surface::Conversation, Turn::user_payload(conv, odd, r.below(1 << 40))),
        2 => {
            let calls = (0..r.below(3)).map(|k| json!({"id": format!("t{}", r.below(6) + k), "name": "f", "arguments": {"x": r.below(9)}})).collect();
            (Surface::Conversation, Turn::assistant_payload(conv, odd, calls, i as u64))
        }
        3 => (Surface::Conversation, Turn::tool_result_payload(conv, &format!("t{}", r.below(6)), odd, i as u64, Default::default(), *r.pick(&[None, Some(true), Some(false)]))),
        4 => (Surface::Conversation, json!({"speaker": r.pick(&["user", "assistant", "tool"]), "text": odd, "timestamp": 1.5, "conversation_id": conv})),
        5 => (Surface::Knowledge, json!({"id": format!("f{}", r.below(20)), "body": odd, "by": who, "w": [0.1, 1e-7, 1e21, 9007199254740993u64, -5, null, true]})),
        6 => (Surface::Skill, json!({"name": odd, "n": r.below(5)})),
        7 => (Surface::Registry { kind: r.pick(&["config", "x:y", ""]).to_string() }, json!({"id": format!("k{}", r.below(6)), "v": r.next()})),
        8 => (Surface::Declagent, json!({"id": format!("d{}", r.below(4)), "rev": i})),
        9 => (Surface::Routing, json!({"sample": 0.25 * r.below(5) as f64})),
        10 => (Surface::Trajectory, json!({"id": format!("{who}-{i}"), "timestamp": i})),
        11 => (Surface::Run, json!({"id": run, "agent_id": agent})),
        12 => (Surface::Intent, json!({"id": run, "agent_id": agent, "epoch": r.below(6), "status": r.pick(&["pending", "committed", "failed", "odd"])})),
        _ => (Surface::Intent, json!({"id": run, "agent_id": agent, "epoch": *r.pick(&[1u64, 2, 3, u64::MAX]), "status": "pending", "note": odd})),
    }
}

struct Api {
    client: reqwest::blocking::Client,
    base: String,
    token: String,
}

impl Api {
    fn new(w: &World) -> Self {
        let first = w.base.split(',').next().unwrap_or_default();
        let base = std::env::var("SYNC_API").unwrap_or_else(|_| first.replace("/sync", "/v1"));
        Api { client: reqwest::blocking::Client::new(), base, token: w.token.clone() }
    }
    fn put(&self, path: &str, body: &Value) -> R<Value> {
        let resp = self.client.put(format!("{}/{}", self.base, path)).json(body).bearer_auth(&self.token).send().map_err(s)?;
        let (status, text) = (resp.status(), resp.text().map_err(s)?);
        if !status.is_success() {
            return Err(format!("PUT {path}: http {status}: {text}"));
        }
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }
    fn post(&self, path: &str) -> R<Value> {
        let resp = self.client.post(format!("{}/{}", self.base, path)).bearer_auth(&self.token).send().map_err(s)?;
        let (status, text) = (resp.status(), resp.text().map_err(s)?);
        if !status.is_success() {
            return Err(format!("POST {path}: http {status}: {text}"));
        }
        serde_json::from_str(&text).map_err(|e| format!("POST {path}: {e}: {text}"))
    }
    fn post_json(&self, path: &str, body: &Value) -> R<Value> {
        let resp = self.client.post(format!("{}/{}", self.base, path)).json(body).bearer_auth(&self.token).send().map_err(s)?;
        let (status, text) = (resp.status(), resp.text().map_err(s)?);
        if !status.is_success() {
            return Err(format!("POST {path}: http {status}: {text}"));
        }
        serde_json::from_str(&text).map_err(|e| format!("POST {path}: {e}: {text}"))
    }
    fn text(&self, path: &str) -> R<String> {
        let resp = self.client.get(format!("{}/{}", self.base, path)).bearer_auth(&self.token).send().map_err(s)?;
        resp.error_for_status().map_err(s)?.text().map_err(s)
    }
    fn get(&self, path: &str, query: &[(&str, &str)]) -> R<Value> {
        let url = format!("{}/{}", self.base, path);
        let resp = self.client.get(&url).query(query).bearer_auth(&self.token).send().map_err(s)?;
        let (status, text) = (resp.status(), resp.text().map_err(s)?);
        if !status.is_success() {
            return Err(format!("GET {path} {query:?}: http {status}: {text}"));
        }
        serde_json::from_str(&text).map_err(|e| format!("GET {path}: {e}: {text}"))
    }
}

fn same(what: &str, server: &Value, krate: &Value) -> R<()> {
    if canonical_json(server) == canonical_json(krate) {
        return Ok(());
    }
    Err(format!("{what} differs\n  server {}\n  crate  {}", canonical_json(server), canonical_json(krate)))
}

/// Random ops of four devices, pushed in interleaved batches; the server's own answers equal the crate's.
fn fold(w: &World) -> R<Value> {
    if w.loopback.is_some() {
        return Ok(json!("the loopback has no read API"));
    }
    let seed: u64 = std::env::var("SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(7);
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(12);
    let mut r = Rng(seed.wrapping_mul(0x9E3779B97F4A7C15) | 1);
    let api = Api::new(w);
    let root = w.root();
    let mut relay = w.relay();
    // clocks of different devices disagree, so late ops with old stamps are common
    let mut logs: Vec<(String, DeviceLog, Vec<OpRecord>, usize)> = (0..4u64)
        .map(|d| {
            let id = w.dev(&format!("f{d}"));
            let wall = 1_700_000_000_000 + d * 5_000;
            (id.clone(), DeviceLog::with_wall_clock(id, Arc::new(move || wall)), Vec::new(), 0)
        })
        .collect();
    let mut all: Vec<OpRecord> = Vec::new();
    for round in 0..rounds {
        for d in 0..logs.len() {
            for i in 0..r.below(12) as usize {
                let id = logs[d].0.clone();
                let (surface, payload) = random_payload(&mut r, &id, round * 100 + i);
                let scope = if r.below(5) == 0 { Scope::Shared { org: "acme".into() } } else { Scope::Personal };
                let op = logs[d].1.append(scope, surface, payload);
                logs[d].2.push(op);
            }
        }
        for (id, _, ops, sent) in logs.iter_mut() {
            if r.below(3) == 0 {
                continue; // this device is offline for a round
            }
            let from = sent.saturating_sub(r.below(4) as usize); // overlap: some are sent twice
            relay.push(id, &ops[from..]).map_err(s)?;
            all.extend(ops[*sent..].iter().cloned());
            *sent = ops.len();
        }
        if round % 3 != 2 {
            continue;
        }
        let state = car_sync::fold(&all);
        let got = api.get(&format!("{root}/state/hash"), &[])?;
        same("state_hash", &got["state_hash"], &json!(state_hash(&state)))?;
        same("frontier", &got["frontier"], &json!(frontier_of(&all)))?;
    }
    let state = car_sync::fold(&all);
    let got = api.get(&format!("{root}/state"), &[])?;
    same("state", &got["state"], &serde_json::to_value(&state).map_err(s)?)?;
    let mut conversations = 0;
    for id in state.conversation_ids() {
        conversations += 1;
        let t = api.get(&format!("{root}/transcript"), &[("conversation", &id)])?;
        same(&format!("transcript {id:?}"), &t["turns"], &serde_json::to_value(state.transcript(&id)).map_err(s)?)?;
        let m = api.get(&format!("{root}/resume"), &[("conversation", &id)])?;
        same(&format!("resume {id:?}"), &m["messages"], &serde_json::to_value(state.resume_messages(&id)).map_err(s)?)?;
    }
    let mut lookups = 0;
    for agent in ["a1", "a 2", "", "nobody"] {
        let ids = api.get(&format!("{root}/committed-runs"), &[("agent", agent)])?;
        same(&format!("committed-runs {agent:?}"), &ids["run_ids"], &json!(state.committed_run_ids(agent)))?;
        for n in 0..12 {
            lookups += 1;
            let run = format!("run-{n}");
            let got = api.get(&format!("{root}/committed-run"), &[("agent", agent), ("run", &run)])?;
            let want = state.committed_run(agent, &run);
            if (got["status"] == "committed") != want.is_some() {
                return Err(format!("committed-run {agent:?} {run}: server {got}, crate {want:?}"));
            }
            same("committed record", &got["record"], &serde_json::to_value(want).map_err(s)?)?;
            let got = api.get(&format!("{root}/intent"), &[("agent", agent), ("run", &run)])?;
            same("intent", &got["record"], &serde_json::to_value(state.intent(agent, &run)).map_err(s)?)?;
        }
    }
    // the state at a past frontier
    let mut past = frontier_of(&all);
    for v in past.values_mut() {
        *v -= r.below(*v + 1);
    }
    let got = api.get(&format!("{root}/state"), &[("at", &serde_json::to_string(&past).map_err(s)?)])?;
    same("state at a past frontier", &got["state"], &serde_json::to_value(fold_at(&all, &past)).map_err(s)?)?;
    let past = past::past(w, &api, &mut r, &all)?;
    Ok(json!({"seed": seed, "ops": all.len(), "conversations": conversations, "lookups": lookups, "state_hash": state_hash(&state), "past": past}))
}

/// One holder at a time under contention; epochs never repeat; stale holders learn that they lost.
fn lease(w: &World) -> R<Value> {
    let agent = format!("{}-agent", w.run);
    let mut handles = Vec::new();
    let winners = Arc::new(std::sync::Mutex::new(Vec::<(u64, String)>::new()));
    for d in 0..6 {
        let (mut c, agent, dev, winners) = (w.leases(), agent.clone(), w.dev(&format!("l{d}")), winners.clone());
        handles.push(std::thread::spawn(move || -> R<usize> {
            let mut held = 0;
            for _ in 0..60 {
                match c.acquire(&agent, &dev, 30_000) {
                    Ok(lease) => {
                        held += 1;
                        winners.lock().unwrap().push((lease.epoch, dev.clone()));
                        let again = c.acquire(&agent, &dev, 30_000);
                        if !matches!(again, Err(LeaseError::Held { .. })) {
                            return Err(format!("re-acquire of a live lease: {again:?}"));
                        }
                        let renewed = c.renew(&agent, &dev, lease.epoch, 30_000).map_err(s)?;
                        if renewed.epoch != lease.epoch {
                            return Err("renew bumped the epoch".into());
                        }
                        c.release(&agent, &dev, lease.epoch).map_err(s)?;
                        if !matches!(c.renew(&agent, &dev, lease.epoch, 1000), Err(LeaseError::Lost { .. })) {
                            return Err("renew after release".into());
                        }
                    }
                    Err(LeaseError::Held { .. }) => {}
                    Err(e) => return Err(s(e)),
                }
            }
            Ok(held)
        }));
    }
    let mut total = 0;
    for h in handles {
        total += h.join().map_err(|_| "thread panicked")??;
    }
    let won = winners.lock().unwrap();
    let epochs: BTreeSet<u64> = won.iter().map(|(e, _)| *e).collect();
    if epochs.len() != won.len() {
        return Err("an epoch was granted twice".into());
    }
    // expiry enables stealing, and only stealing
    let mut c = w.leases();
    let (x, y) = (w.dev("x"), w.dev("y"));
    let first = c.acquire(&agent, &x, 150).map_err(s)?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    c.renew(&agent, &x, first.epoch, 150).map_err(|e| format!("renew past expiry, unstolen: {e}"))?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    let stolen = c.acquire(&agent, &y, 60_000).map_err(s)?;
    if stolen.epoch != first.epoch + 1 {
        return Err("steal did not bump the epoch by one".into());
    }
    if !matches!(c.release(&agent, &x, first.epoch), Err(LeaseError::Lost { .. })) {
        return Err("the old holder released the new holder's lease".into());
    }
    let state = SyncState::default();
    let zombie = check_dispatch(&mut c, &state, &agent, "r1", &x, first.epoch).map_err(s)?;
    let holder = check_dispatch(&mut c, &state, &agent, "r1", &y, stolen.epoch).map_err(s)?;
    if zombie.may_dispatch() || !holder.may_dispatch() {
        return Err(format!("fence: zombie {zombie:?}, holder {holder:?}"));
    }
    Ok(json!({"acquired": total, "epochs": epochs.len(), "last_epoch": stolen.epoch}))
}

/// End-to-end encrypted devices converge; the relay holds only envelopes.
fn sealed(w: &World) -> R<Value> {
    let dir = tempfile::tempdir().map_err(s)?;
    let provider: Arc<dyn SyncKeyProvider> = Arc::new(DerivedKeyProvider::from_login_secret(b"a long high-entropy login secret for tests only", "u1"));
    let mut relay = w.relay();
    let mut a = w.open(dir.path(), "sa")?.with_key_provider(provider.clone());
    let mut b = w.open(dir.path(), "sb")?.with_key_provider(provider);
    write_mixed(&mut a, "sa", 30)?;
    write_mixed(&mut b, "sb", 30)?;
    for _ in 0..2 {
        a.pump(&mut relay).map_err(s)?;
        b.pump(&mut relay).map_err(s)?;
    }
    let (x, y) = (a.state(), b.state());
    let pick = |st: &SyncState| st.logs.get("knowledge").map(|m| m.len()).unwrap_or(0);
    let pulled = relay.pull(&w.dev("peek"), &Frontier::new()).map_err(s)?;
    let mine: Vec<_> = pulled.ops.iter().filter(|o| o.device_id == w.dev("sa") || o.device_id == w.dev("sb")).collect();
    if mine.len() != 60 || mine.iter().any(|o| !Envelope::is_envelope(&o.payload)) {
        return Err("the relay holds cleartext, or lost sealed ops".into());
    }
    if state_hash(&x) != state_hash(&y) {
        return Err("sealed devices diverged".into());
    }
    Ok(json!({"sealed_ops": mine.len(), "knowledge": pick(&x), "state_hash": state_hash(&x)}))
}

/// A sealed scope whose owner gives the server its passphrase: the server's answers equal the sealing devices' own.
fn unlock(w: &World) -> R<Value> {
    if w.loopback.is_some() {
        return Ok(json!("the loopback has no read API"));
    }
    let dir = tempfile::tempdir().map_err(s)?;
    let (passphrase, user) = ("correct horse battery staple, for tests only", "acct-1");
    let provider: Arc<dyn SyncKeyProvider> = Arc::new(DerivedKeyProvider::from_passphrase(passphrase, user));
    let mut relay = w.relay();
    let mut a = w.open(dir.path(), "ua")?.with_key_provider(provider.clone());
    let mut b = w.open(dir.path(), "ub")?.with_key_provider(provider);
    write_mixed(&mut a, "ua", 45)?;
    a.append(Scope::Personal, Surface::Intent, Intent::new("agent-1", "run-1", 1, IntentStatus::Committed).payload()).map_err(s)?;
    for _ in 0..2 {
        a.pump(&mut relay).map_err(s)?;
        b.pump(&mut relay).map_err(s)?;
    }
    let (api, root) = (Api::new(w), w.root());
    // before: the server cannot know
    match api.get(&format!("{root}/committed-run"), &[("agent", "agent-1"), ("run", "run-1")]) {
        Err(e) if e.contains("503") && e.contains("sealed_scope") => {}
        other => return Err(format!("a locked scope must answer 503 sealed_scope, got {other:?}")),
    }
    api.put(&format!("{root}/keys"), &json!({"passphrase": passphrase, "user": user}))?;
    write_mixed(&mut b, "ub", 45)?; // some ops come before the key, some after
    for _ in 0..2 {
        b.pump(&mut relay).map_err(s)?;
        a.pump(&mut relay).map_err(s)?;
    }
    let state = a.state();
    same("state_hash", &api.get(&format!("{root}/state/hash"), &[])?["state_hash"], &json!(state_hash(&state)))?;
    same("transcript", &api.get(&format!("{root}/transcript"), &[("conversation", "c1")])?["turns"], &serde_json::to_value(state.transcript("c1")).map_err(s)?)?;
    same("resume", &api.get(&format!("{root}/resume"), &[("conversation", "c1")])?["messages"], &serde_json::to_value(state.resume_messages("c1")).map_err(s)?)?;
    let got = api.get(&format!("{root}/committed-run"), &[("agent", "agent-1"), ("run", "run-1")])?;
    same("committed", &got["record"], &serde_json::to_value(state.committed_run("agent-1", "run-1")).map_err(s)?)?;
    Ok(json!({"ops": a.ops().len(), "state_hash": state_hash(&state)}))
}

/// The org-key directory stores and serves wrapped keys and public keys.
fn orgkeys(w: &World) -> R<Value> {
    let org = w.org();
    let wrapped = |epoch: u64, who: &str| -> R<WrappedOrgKey> {
        serde_json::from_value(json!({"car_wrap": "org-key-wrap/v2", "org": "acme", "epoch": epoch, "recipient": who, "publisher": "admin",
            "ephemeral_pub": "aa", "recipient_pub": "bb", "envelope": {"car_enc": "chacha20poly1305", "nonce": "00", "ct": format!("{epoch}")}, "signature": "cc"})).map_err(s)
    };
    for e in 1..4 {
        org.publish_wrapped(&w.scope, &wrapped(e, "acc_alice")?).map_err(s)?;
    }
    let got = org.fetch_wrapped_for(&w.scope, "acc_alice").map_err(s)?;
    let one = org.fetch_wrapped(&w.scope, 2, "acc_alice").map_err(s)?.ok_or("epoch 2 missing")?;
    if got.len() != 3 || one.epoch != 2 {
        return Err(format!("expected 3 wraps, got {}", got.len()));
    }
    if org.fetch_wrapped(&w.scope, 9, "acc_alice").map_err(s)?.is_some() {
        return Err("unknown epoch served".into());
    }
    org.publish_pubkey(&w.scope, "acc_alice", "ab12").map_err(s)?;
    org.publish_pubkey(&w.scope, "acc_alice", "cd34").map_err(s)?;
    let keys = org.fetch_pubkeys(&w.scope).map_err(s)?;
    if !keys.iter().any(|k| k.account_id == "acc_alice" && k.public_hex == "cd34") {
        return Err(format!("pubkey not served: {keys:?}"));
    }
    Ok(json!({"wraps": got.len(), "order": got.iter().map(|x| x.epoch).collect::<Vec<_>>()}))
}

/// A wrong token is refused as unauthorized, never as a retryable failure.
fn auth(w: &World) -> R<Value> {
    if w.loopback.is_some() {
        return Ok(json!("no auth on loopback"));
    }
    let t = w.http("not-a-token");
    match t.roster(&w.scope) {
        Err(TransportError::Unauthorized(_)) => {}
        other => return Err(format!("bad token: {other:?}")),
    }
    let t = w.http(&w.token);
    match t.roster("user:someone-else") {
        Err(TransportError::Unauthorized(_)) => Ok(json!("refused")),
        other => Err(format!("another scope's roster: {other:?}")),
    }
}

/// Throughput of a real device: push N ops in one batch, pull them as a new device, sizes in ops/s.
fn speed(w: &World) -> R<Value> {
    let n: usize = std::env::var("N").ok().and_then(|v| v.parse().ok()).unwrap_or(10_000);
    let batch: usize = std::env::var("BATCH").ok().and_then(|v| v.parse().ok()).unwrap_or(1_000);
    let mut relay = w.relay();
    let id = w.dev("bulk");
    let mut log = DeviceLog::with_wall_clock(id.clone(), system_clock());
    let ops: Vec<OpRecord> = (0..n).map(|i| log.append(Scope::Personal, Surface::Conversation, Turn::user_payload("bulk", &format!("message {i} {}", "x".repeat(150)), i as u64))).collect();
    let t = Instant::now();
    let mut each = Vec::new();
    for chunk in ops.chunks(batch) {
        let t = Instant::now();
        relay.push(&id, chunk).map_err(s)?;
        each.push(t.elapsed().as_secs_f64() * 1e3);
    }
    let push = t.elapsed().as_secs_f64();
    let median = |mut v: Vec<f64>| {
        v.sort_by(|a, b| a.total_cmp(b));
        v[v.len() / 2]
    };
    let end = each.len().min(10);
    let (first, last) = (median(each[..end].to_vec()), median(each[each.len() - end..].to_vec()));
    let t = Instant::now();
    let got = relay.pull(&w.dev("reader"), &Frontier::new()).map_err(s)?;
    let pull = t.elapsed().as_secs_f64();
    if got.ops.iter().filter(|o| o.device_id == id).count() != n {
        return Err("pull lost ops".into());
    }
    Ok(json!({"n": n, "batch": batch, "push_ops_s": (n as f64 / push) as u64, "pull_ops_s": (got.ops.len() as f64 / pull) as u64,
        "first_batches_ms": first, "last_batches_ms": last}))
}

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let loopback = std::env::var("SYNC_LOOPBACK").is_ok().then(|| LoopbackTransport::new().unwrap());
    let get = |k: &str, d: &str| std::env::var(k).unwrap_or_else(|_| d.to_string());
    if names.is_empty() {
        eprintln!("which scenarios? converge refuse compact hostile unpublished lease sealed orgkeys auth fold unlock unlocked projections speed");
        std::process::exit(2);
    }
    let mut failed = false;
    for (i, name) in names.iter().enumerate() {
        let nonce = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() % 1_000_000_007;
        // {} in SYNC_SCOPE is replaced by the scenario's name
        let w = World { base: get("SYNC_BASE", "http://127.0.0.1:8000/sync"), token: get("SYNC_TOKEN", ""), scope: get("SYNC_SCOPE", "user:{}").replace("{}", name),
            loopback: loopback.clone(), run: format!("r{i}{nonce}") };
        let result = match name.as_str() {
            "converge" => converge(&w),
            "refuse" => refuse(&w),
            "compact" => compact(&w),
            "hostile" => hostile::hostile(&w),
            "unpublished" => unpublished::unpublished(&w),
            "lease" => lease(&w),
            "sealed" => sealed(&w),
            "unlocked" => unlocked::unlocked(&w),
            "projections" => projections::projections(&w),
            "orgkeys" => orgkeys(&w),
            "auth" => auth(&w),
            "speed" => speed(&w),
            "fold" => fold(&w),
            "unlock" => unlock(&w),
            other => Err(format!("no such scenario: {other}")),
        };
        match result {
            Ok(v) => println!("{}", json!({"scenario": name, "ok": true, "result": v})),
            Err(e) => {
                failed = true;
                println!("{}", json!({"scenario": name, "ok": false, "error": e}))
            }
        }
    }
    std::process::exit(if failed { 1 } else { 0 });
}
