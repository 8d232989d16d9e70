//! What a message holds is data and nothing else: it reaches no SQL text, and forges no other message's claim (G5).

use std::collections::BTreeSet;

use idempotent_runtime::{Error, Outcome, idempotent};
use sqlx::AssertSqlSafe;

use crate::Tx;
use crate::handlers::effect;
use crate::harness::{World, rounds};

/// Text that has broken out of somebody's quotes, format, line or encoding.
const ATTACKS: [&str; 24] = [
    "PWNED'; DROP TABLE effects; --",
    "PWNED\\'; DROP TABLE effects; #",
    "PWNED\"; DROP TABLE effects; --",
    "PWNED`; DROP TABLE effects; --",
    "PWNED\u{0}'; DELETE FROM processed_messages; --",
    "PWNED' OR ''='",
    "PWNED') ON CONFLICT DO NOTHING; --",
    "PWNED */ COMMIT /*",
    "PWNED; COMMIT; BEGIN",
    "X'50574E4544'",
    "PWNED %s %n {} ${x} $1 ?1 :key @key",
    "{table} {positions} PWNED ?",
    "PWNED\r\nERROR forged",
    "PWNED\u{1b}[2J",
    "PWNED\u{bf}\u{27}",
    "\u{202e}PWNED",
    "PWNED\u{feff}",
    "PWNED%27",
    "PWNED%2525",
    "%sha256:ce16fe78208a4e93f7158e62393680e025b2ad584f4e875ce903a654bb74cf93",
    "%none",
    "PWNED/../PWNED",
    "PWNED:PWNED",
    "$$PWNED$$",
];

struct Message {
    sender: String,
    tenant: String,
    id: String,
}

#[idempotent(
    key = "{message.tenant}/{message.id}",
    sender = "{message.sender}",
    consumer = "hostile.take",
    fingerprint = "{message.tenant}-{message.id}",
    replay
)]
async fn take(#[tx] tx: &mut Tx<'_>, message: &Message) -> Result<Vec<String>, Error> {
    effect(tx, "taken").await?;
    Ok(vec![message.sender.clone(), message.tenant.clone(), message.id.clone()])
}

#[idempotent(sequence(entity = "{entity}/{part}", number = "number"), sender = "{sender}", consumer = "hostile.follow")]
async fn follow(#[tx] tx: &mut Tx<'_>, sender: &str, entity: &str, part: &str, number: i64) -> Result<(), Error> {
    Ok(effect(tx, "followed").await?)
}

fn random() -> String {
    let pieces = fastrand::usize(1..4);
    let piece = |_| match fastrand::u8(0..4) {
        0 => fastrand::char(..).to_string(),
        1 => ["/", ":", "%", "'", "\\", "\"", "-", "%2F"][fastrand::usize(..8)].to_owned(),
        _ => ATTACKS[fastrand::usize(..ATTACKS.len())].to_owned(),
    };
    (0..pieces).map(piece).collect()
}

/// Delivers hostile messages, each twice; the number of different ones.
pub(crate) async fn attack(pool: &sqlx::Pool<crate::Db>, count: usize) -> usize {
    let attacks = ATTACKS.iter().map(|text| (*text).to_owned());
    let texts: Vec<String> = attacks.chain(std::iter::repeat_with(random)).take(count.max(ATTACKS.len())).collect();
    let mut known = BTreeSet::new();
    let mut first = 0;
    for (index, text) in texts.iter().enumerate() {
        let [sender, tenant] = [&texts[index / 2], &texts[index / 3]];
        let parts = [sender, tenant, text].map(String::clone);
        if parts.iter().any(|part| part.trim().is_empty()) {
            continue;
        }
        let message = Message { sender: sender.clone(), tenant: tenant.clone(), id: text.clone() };
        let new = known.insert(parts.clone());
        first += usize::from(new);
        let outcome = take(pool, &message).await.expect("no error");
        assert_eq!(outcome.is_processed(), new, "{parts:?}");
        let again = take(pool, &message).await.expect("no error");
        assert_eq!(again, Outcome::Replayed(parts.to_vec()), "its own answer, and no other's");
        assert_eq!(follow(pool, sender, tenant, text, 1).await.expect("no error").is_processed(), new, "{parts:?}");
    }
    first
}

#[tokio::test]
async fn hostile_messages_are_data_each_with_a_claim_of_its_own() {
    let world = World::new().await;
    let messages = i64::try_from(attack(&world.pool, rounds(60, 3_000)).await).expect("a few");
    assert_eq!((world.claims().await, world.effects().await), (messages, 2 * messages));
    assert_eq!(world.number("SELECT count(*) FROM processed_messages_positions").await, messages);
    let stored = format!("SELECT sender, {} FROM processed_messages", crate::KEY);
    let stored: Vec<(String, String)> =
        sqlx::query_as(AssertSqlSafe(stored)).fetch_all(&world.observer).await.expect("the claims");
    for (sender, key) in stored {
        assert!(sender.len() <= 128 && key.len() <= 255 && !key.is_empty(), "{sender} {key}");
        assert!(sender.bytes().chain(key.bytes()).all(|byte| byte.is_ascii_graphic()), "{sender} {key}");
    }
    println!("{messages} messages, hostile");
}
