//! An unlocked scope with an org in it: real devices open what the server seals, and fold what it folds, key by key.
use crate::hosted::hosted;
use crate::hostile::{agree, settle};
use crate::{s, same, write_mixed, Api, World, R};
use car_sync::*;
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

const PASSPHRASE: &str = "a second passphrase, for tests only";
const USER: &str = "acct-2";
type Key = [u8; 32];

/// A login's keys: its passphrase, and what the org shared with it by epoch.
fn provider(org_keys: &[(u64, Key)]) -> Arc<dyn SyncKeyProvider> {
    let personal: Arc<dyn SyncKeyProvider> = Arc::new(DerivedKeyProvider::from_passphrase(PASSPHRASE, USER));
    if org_keys.is_empty() {
        return personal;
    }
    let held: BTreeMap<_, _> = org_keys
        .iter()
        .map(|(epoch, key)| {
            let mut own = generate_org_key();
            own.copy_from_slice(key);
            (*epoch, own)
        })
        .collect();
    Arc::new(OrgAwareKeyProvider::new(personal, HashMap::from([("acme".to_string(), held)])))
}

fn shares(device: &mut SyncSession, round: u64) -> R<()> {
    let acme = || Scope::Shared { org: "acme".into() };
    for n in 0..5 {
        device.append(acme(), Surface::Knowledge, json!({"id": format!("shared-{n}"), "round": round})).map_err(s)?;
        device.append(acme(), Surface::Conversation, Turn::user_payload("team", &format!("{round}.{n}"), n)).map_err(s)?;
    }
    device.append(acme(), Surface::Intent, Intent::new("agent-1", format!("shared-{round}"), 1, IntentStatus::Committed).payload()).map_err(s)?;
    Ok(())
}

/// Passphrase first, then the org's first key, then the rotated one: after each the server holds what such a login holds.
pub fn unlocked(w: &World) -> R<Value> {
    let (api, root, mut relay) = (Api::new(w), w.root(), w.relay());
    let dir = tempfile::tempdir().map_err(s)?;
    let mut fresh = [[0u8; 32]; 2];
    fresh.iter_mut().for_each(|key| key.copy_from_slice(&generate_org_key()[..]));
    let keys = [(1, fresh[0]), (2, fresh[1])];
    let open = |name: &str, held: &[(u64, Key)]| Ok::<_, String>(w.open(dir.path(), name)?.with_key_provider(provider(held)));
    let (mut a, mut b) = (open("oa", &keys[..1])?, open("ob", &keys[..1])?);
    write_mixed(&mut a, "oa", 27)?;
    shares(&mut a, 1)?;
    settle(&mut [&mut a, &mut b], &mut relay)?;
    drop((a, b)); // one writer holds a journal at a time
    let (mut a, mut b) = (open("oa", &keys)?, open("ob", &keys)?);
    shares(&mut b, 2)?;
    write_mixed(&mut b, "ob", 27)?;
    settle(&mut [&mut a, &mut b], &mut relay)?;
    agree(&[&a, &b])?;

    let mut closed = Vec::new();
    for held in [&keys[..0], &keys[..1], &keys[..]] {
        api.put(&format!("{root}/keys"), &given(held))?;
        let told = api.get(&format!("{root}/state/hash"), &[])?;
        same("state hash", &told["state_hash"], &json!(folded_by_a_login_with(w, dir.path(), held)?))?;
        closed.push(told["sealed_ops"].clone());
    }
    same("ops that stay closed", &json!(closed), &json!([22, 11, 0]))?;
    same("state hash of the whole", &api.get(&format!("{root}/state/hash"), &[])?["state_hash"], &json!(a.state_hash()))?;
    let written = hosted(w, &mut [a, b])?;
    Ok(json!({"closed": closed, "hosted": written}))
}

fn given(org_keys: &[(u64, Key)]) -> Value {
    if org_keys.is_empty() {
        return json!({"passphrase": PASSPHRASE, "user": USER});
    }
    let hex = |key: &Key| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let by_epoch: BTreeMap<String, String> = org_keys.iter().map(|(epoch, key)| (epoch.to_string(), hex(key))).collect();
    json!({"audiences": {"org:acme": by_epoch}})
}

/// The state of a new device of this login, which pulls everything.
fn folded_by_a_login_with(w: &World, dir: &Path, org_keys: &[(u64, Key)]) -> R<String> {
    let name = format!("newcomer-{}", org_keys.len());
    let mut device = w.open(dir, &name)?.with_key_provider(provider(org_keys));
    settle(&mut [&mut device], &mut w.relay())?;
    Ok(device.state_hash())
}
