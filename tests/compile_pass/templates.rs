//! Everything that a template may hold, and what becomes of it.

#![deny(warnings)]

use idempotent_runtime::{Claim, KeyPart, idempotent};
use sqlx::SqliteTransaction;
use sqlx::sqlite::SqlitePoolOptions;

#[derive(KeyPart)]
struct Tenant(String);

#[derive(KeyPart)]
struct Number<T>
where
    T: Copy,
{
    value: T,
}

#[derive(KeyPart)]
struct Borrowed<'a>(&'a str);

#[derive(KeyPart)]
enum Kind {
    #[key_part("created")]
    Created,
    #[key_part("très")]
    Other {},
}

struct Event {
    id: String,
    tenant: Tenant,
    version: (u32, Option<u32>),
    kind: Kind,
}

impl Event {
    fn name(&self) -> &str {
        "a name"
    }
}

#[idempotent(key = "v1/{event.tenant}:{event.id}/{{{event.version.0}}}-{event.kind}.{event.name()}")]
async fn composed(_tx: &mut SqliteTransaction<'_>, event: &Event, claim: &Claim) -> sqlx::Result<String> {
    Ok(claim.key().to_owned())
}

#[idempotent(key = "{number}|{borrowed}", sender = "{event.tenant}/{event.kind}", retention = "1w", horizon = "6d")]
async fn sent(
    _tx: &mut SqliteTransaction<'_>,
    number: Number<u8>,
    borrowed: Borrowed<'_>,
    event: &Event,
    c: &Claim,
) -> sqlx::Result<(String, String)> {
    Ok((c.sender().to_owned(), c.key().to_owned()))
}

#[idempotent(key = "{event.version.1}", sender = "stripe", missing = "reject", consumer = "templates.optional")]
async fn optional(_tx: &mut SqliteTransaction<'_>, event: &Event, claim: &Claim) -> sqlx::Result<String> {
    Ok(claim.consumer().to_owned())
}

#[idempotent(key = r"{event.version.1}", missing = "process")]
async fn unprotected(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> sqlx::Result<()> {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    idempotent_runtime::migrate(&pool).await?;
    let event =
        Event { id: "a b".to_owned(), tenant: Tenant("x:y".to_owned()), version: (7, None), kind: Kind::Created };
    let key = composed(&pool, &event).await?.value();
    assert_eq!(key.as_deref(), Some("v1/x%3Ay:a%20b/{7}-created.a%20name"));

    let other = Event { kind: Kind::Other {}, version: (7, Some(8)), ..event };
    let stored = sent(&pool, Number { value: 5 }, Borrowed("a|b"), &other).await?.value();
    assert_eq!(stored, Some(("x:y/tr%C3%A8s".to_owned(), "5|a%7Cb".to_owned())));
    assert_eq!(optional(&pool, &other).await?.value().as_deref(), Some("templates.optional"));

    let without = Event { version: (7, None), ..other };
    assert!(optional(&pool, &without).await.is_err());
    for _ in 0..2 {
        assert!(unprotected(&pool, &without).await?.is_processed());
    }
    Ok(())
}
