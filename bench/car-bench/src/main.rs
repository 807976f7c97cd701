//! Single-thread speed of car-sync 0.60.0. Prints one JSON object.
//! Usage: car-bench [max_n]          every figure (default 1000000)
//!        car-bench ops mixed|turns N  the ops that the figures below are of, one JSON text a line
//!        car-bench state_hash N       the hash of N mixed ops' state alone
//!        car-bench resume N           the resume messages of one conversation of N turns alone
//! Every figure is the minimum time over several runs.
use car_sync::*;
use serde_json::{json, Value};
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

struct Lcg(u64);
impl Lcg {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

const TEXT: &str = "The quick brown fox jumps over the lazy dog and then writes a short status line.";

fn payload(r: &mut Lcg, i: u64) -> (Surface, Value) {
    let ts = 1_700_000_000_000 + i;
    match r.below(100) {
        0..=19 => (Surface::Conversation, Turn::user_payload(&format!("c{}", r.below(50)), TEXT, ts)),
        20..=34 => {
            let calls = if r.below(3) == 0 { vec![json!({"id": format!("call_{i}"), "name": "search", "arguments": {"q": "x", "n": i}})] } else { vec![] };
            (Surface::Conversation, Turn::assistant_payload(&format!("c{}", r.below(50)), TEXT, calls, ts))
        }
        35..=39 => (Surface::Conversation, Turn::tool_payload(&format!("c{}", r.below(50)), "call_1", TEXT, ts)),
        40..=54 => (Surface::Knowledge, json!({"id": format!("fact-{}", r.below(200_000)), "body": TEXT, "confidence": 0.75, "timestamp": ts})),
        55..=59 => (Surface::Skill, json!({"id": format!("skill-{}", r.below(500)), "body": TEXT, "tags": ["a", "b"]})),
        60..=69 => (Surface::Routing, json!({"model": "m1", "sample": (r.below(1000) as f64) / 1000.0})),
        70..=74 => (Surface::Declagent, json!({"id": format!("agent-{}", r.below(100)), "model": "m", "rev": i})),
        75..=79 => (Surface::Registry { kind: "config".into() }, json!({"id": format!("k{}", r.below(100)), "value": {"a": i, "b": [1, 2, 3]}})),
        80..=84 => (Surface::Trajectory, json!({"id": format!("t-{i}"), "steps": [1, 2, 3], "timestamp": ts})),
        85..=89 => (Surface::Run, json!({"id": format!("run-{i}"), "agent_id": "milo", "timestamp": ts})),
        _ => {
            let st = [IntentStatus::Pending, IntentStatus::Committed, IntentStatus::Failed][r.below(3) as usize];
            (Surface::Intent, Intent::new(format!("agent-{}", r.below(20)), format!("run-{}", r.below(50_000)), 1 + r.below(5), st).payload())
        }
    }
}

/// One conversation of n turns, by one device.
fn turns(n: usize) -> Vec<OpRecord> {
    let mut d = DeviceLog::with_wall_clock("device-0", Arc::new(|| 1_700_000_000_000));
    (0..n as u64)
        .map(|i| {
            let p = match i % 4 {
                0 => Turn::user_payload("c", TEXT, i),
                1 => Turn::assistant_payload("c", TEXT, vec![json!({"id": format!("call_{i}"), "name": "search", "arguments": {"q": "x"}})], i),
                2 => Turn::tool_payload("c", &format!("call_{}", i - 1), TEXT, i),
                _ => Turn::assistant_payload("c", TEXT, vec![], i),
            };
            d.append(Scope::Personal, Surface::Conversation, p)
        })
        .collect()
}

/// Mixed ops over 4 devices; returned in a shuffled arrival order.
fn ops(n: usize) -> Vec<OpRecord> {
    let mut r = Lcg(42);
    let wall = Arc::new(AtomicU64::new(1_700_000_000_000));
    let mut devs: Vec<DeviceLog> = (0..4)
        .map(|d| {
            let w = wall.clone();
            DeviceLog::with_wall_clock(format!("device-{d}"), Arc::new(move || w.load(Ordering::Relaxed)))
        })
        .collect();
    let mut out: Vec<OpRecord> = Vec::with_capacity(n);
    for i in 0..n as u64 {
        if r.below(2) == 0 {
            wall.fetch_add(1, Ordering::Relaxed);
        }
        let d = r.below(4) as usize;
        let (s, p) = payload(&mut r, i);
        let scope = if r.below(10) == 0 { Scope::Shared { org: "acme".into() } } else { Scope::Personal };
        out.push(devs[d].append(scope, s, p));
    }
    for i in (1..out.len()).rev() {
        let j = r.below(i as u64 + 1) as usize;
        out.swap(i, j);
    }
    out
}

fn best<T>(runs: usize, mut f: impl FnMut() -> T) -> f64 {
    let mut b = f64::MAX;
    for _ in 0..runs {
        let t = Instant::now();
        black_box(f());
        b = b.min(t.elapsed().as_secs_f64());
    }
    b
}

fn rate(n: usize, secs: f64) -> Value {
    json!({"n": n, "seconds": (secs * 1e6).round() / 1e6, "per_second": (n as f64 / secs).round()})
}

/// One figure, or the ops it is of; false for an ordinary run.
fn one(args: &[String]) -> bool {
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ops", kind, n] => {
            let n = n.parse().unwrap();
            let mut out = BufWriter::new(std::io::stdout().lock());
            for op in if kind == "mixed" { ops(n) } else { turns(n) } {
                writeln!(out, "{}", serde_json::to_string(&op).unwrap()).unwrap();
            }
        }
        ["state_hash", n] => {
            let st = fold(&ops(n.parse().unwrap()));
            println!("{}", json!({"seconds": best(3, || state_hash(&st)), "state_hash": state_hash(&st)}));
        }
        ["resume", n] => {
            let st = fold(&turns(n.parse().unwrap()));
            println!("{}", json!({"seconds": best(15, || st.resume_messages("c")), "messages": st.resume_messages("c").len()}));
        }
        _ => return false,
    }
    true
}

fn main() {
    if one(&std::env::args().skip(1).collect::<Vec<_>>()) {
        return;
    }
    let max: usize = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1_000_000);
    let mut out = serde_json::Map::new();

    for (n, runs) in [(10_000usize, 15), (100_000, 5), (1_000_000, 3)] {
        if n > max {
            continue;
        }
        let v = ops(n);
        out.insert(format!("fold_{n}"), rate(n, best(runs, || fold(&v))));
        if n == 100_000 {
            out.insert("op_id_hash".into(), rate(n, best(5, || v.iter().map(|o| o.compute_op_id().len()).sum::<usize>())));
            out.insert("verify_log".into(), rate(n, best(5, || verify_log(&v).unwrap())));
            let st = fold(&v);
            out.insert("state_hash".into(), rate(n, best(3, || state_hash(&st))));
            out.insert("checkpoint_from_ops".into(), rate(n, best(3, || Checkpoint::from_ops(&v).unwrap())));
            let cut = v.len() - 100;
            let base = fold(&v[..cut]);
            out.insert("fold_onto_100_onto_99900".into(), rate(100, best(5, || fold_onto(&base, &v[cut..]))));
            let text: Vec<String> = v.iter().map(|o| serde_json::to_string(o).unwrap()).collect();
            out.insert("parse_json".into(), rate(n, best(3, || text.iter().map(|t| serde_json::from_str::<OpRecord>(t).unwrap().seq).sum::<u64>())));
            out.insert("mean_op_json_bytes".into(), json!(text.iter().map(String::len).sum::<usize>() / n));
        }
    }

    // relay: one device, 10k ops
    let n = 10_000usize;
    let chain: Vec<OpRecord> = {
        let mut r = Lcg(7);
        let mut d = DeviceLog::new("device-0");
        (0..n as u64).map(|i| { let (s, p) = payload(&mut r, i); d.append(Scope::Personal, s, p) }).collect()
    };
    let fs = |dir: &std::path::Path| FsRelay::open(dir, RelayConfig::default(), Arc::new(|| 1)).unwrap();
    out.insert("fs_push_one_batch_of_10000".into(), rate(n, best(3, || {
        let d = tempfile::tempdir().unwrap();
        fs(d.path()).push("device-0", &chain).unwrap()
    })));
    out.insert("fs_push_batches_of_100".into(), rate(n, best(2, || {
        let d = tempfile::tempdir().unwrap();
        let mut r = fs(d.path());
        for c in chain.chunks(100) { r.push("device-0", c).unwrap(); }
    })));
    out.insert("fs_push_single_ops_first_500".into(), rate(500, best(2, || {
        let d = tempfile::tempdir().unwrap();
        let mut r = fs(d.path());
        for c in chain[..500].chunks(1) { r.push("device-0", c).unwrap(); }
    })));
    {
        let d = tempfile::tempdir().unwrap();
        let mut r = fs(d.path());
        r.push("device-0", &chain).unwrap();
        out.insert("fs_pull_all_10000".into(), rate(n, best(5, || r.pull("p", &Frontier::new()).unwrap())));
        let mut since = Frontier::new();
        since.insert("device-0".into(), n as u64 - 101);
        out.insert("fs_pull_last_100_of_10000".into(), rate(100, best(5, || r.pull("p", &since).unwrap())));
    }
    out.insert("mem_push_batches_of_100".into(), rate(n, best(5, || {
        let mut r = InMemoryRelay::new(RelayConfig::default(), Arc::new(|| 1));
        for c in chain.chunks(100) { r.push("device-0", c).unwrap(); }
    })));
    {
        let mut r = InMemoryRelay::new(RelayConfig::default(), Arc::new(|| 1));
        r.push("device-0", &chain).unwrap();
        out.insert("mem_pull_all_10000".into(), rate(n, best(5, || r.pull("p", &Frontier::new()).unwrap())));
    }

    // one conversation of 10k turns
    let turns = turns(n);
    let st = fold(&turns);
    out.insert("resume_messages_10000_turns".into(), rate(n, best(15, || st.resume_messages("c"))));
    out.insert("transcript_10000_turns".into(), rate(n, best(15, || st.transcript("c"))));
    out.insert("fold_10000_turns".into(), rate(n, best(15, || fold(&turns))));
    println!("{}", serde_json::to_string_pretty(&Value::Object(out)).unwrap());
}
