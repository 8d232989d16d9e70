//! `occurred_at`, `expired`, `sequence`, `fingerprint` and `replay`, in every place where a handler may stand.

#![deny(warnings, clippy::pedantic)]

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;

use idempotent_runtime::{
    Claim, Database, Error, Outcome, SequenceNumber, Source, Timestamp, UnixMillis, UnixSeconds, idempotent,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Sqlite, SqliteConnection, SqlitePool, SqliteTransaction};

struct Event {
    id: String,
    created: UnixSeconds,
    pair: (u32, UnixMillis),
}

impl Event {
    fn version(&self) -> u64 {
        u64::from(self.pair.0)
    }

    const fn at(&self) -> Option<SystemTime> {
        None
    }

    fn when(&self) -> SystemTime {
        self.at().unwrap_or(SystemTime::now())
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Answer {
    text: String,
}

struct Service;

trait Handles {
    async fn handle(&self, source: impl Into<Source<'_, Sqlite>> + Send, event: &Event)
    -> Result<Outcome<Answer>, Error>;
}

impl Handles for Service {
    #[idempotent(
        key = "{event.id}",
        occurred_at = "event.created",
        expired = "skip",
        sequence(entity = "{event.pair.0}", number = "event.pair.1"),
        fingerprint = "{event.id}:{event.pair.0}",
        replay
    )]
    async fn handle(&self, _tx: &mut SqliteTransaction<'_>, event: &Event) -> Result<Answer, Error> {
        Ok(Answer { text: event.id.clone() })
    }
}

impl Service {
    /// Documented.
    ///
    /// # Errors
    ///
    /// Those of the database.
    #[idempotent(key = "{event.id}", occurred_at = "event.when()", sequence(entity = "{event.id}", number = "event.version()"))]
    pub async fn method(self: Arc<Self>, _tx: &mut SqliteConnection, event: Event, claim: &Claim) -> sqlx::Result<()> {
        assert_eq!(claim.key(), event.id);
        Ok(())
    }
}

#[idempotent(sequence(entity = "{topic}/{partition}", number = "offset"))]
async fn stream(_tx: &mut SqliteTransaction<'_>, topic: &str, partition: u8, offset: i64) -> sqlx::Result<()> {
    Ok(())
}

#[idempotent(key = "{id}", occurred_at = "at", sequence(entity = "{id}", number = "number"), replay)]
async fn generic<T: Timestamp + Sync, N: SequenceNumber + Sync>(
    _tx: &mut SqliteTransaction<'_>,
    id: &str,
    at: &T,
    number: N,
) -> Result<Vec<u8>, Error> {
    Ok(id.as_bytes().to_vec())
}

#[idempotent(key = "{id}", fingerprint = "{cents}/{note}", missing = "reject", consumer = "any.optional")]
async fn optional(_tx: &mut SqliteTransaction<'_>, id: Option<&str>, cents: i64, note: Option<&str>) -> Result<(), Error> {
    Ok(())
}

/// What is read into it is owned, whatever its lifetime.
#[idempotent(key = "{event.id}", replay, consumer = "any.cow")]
async fn cow<'e>(_tx: &mut SqliteTransaction<'_>, event: &'e Event) -> Result<Cow<'e, str>, Error> {
    Ok(Cow::Borrowed(&event.id))
}

/// A value that cannot be shared between threads, of a handler that is spawned.
#[idempotent(key = "{id}", replay, consumer = "any.send")]
async fn only_send<T: Serialize + DeserializeOwned + Send>(
    _tx: &mut SqliteTransaction<'_>,
    id: &str,
    value: T,
) -> Result<T, Error> {
    Ok(value)
}

fn over_any_database<DB: Database>(_: &sqlx::Pool<DB>) {}

async fn run(pool: SqlitePool) -> Result<(), Error> {
    let event = |version| Event { id: "1".into(), created: UnixSeconds(now() / 1000), pair: (version, UnixMillis(7)) };
    let first = Service.handle(&pool, &event(1)).await?;
    assert_eq!(first, Outcome::Processed(Answer { text: "1".into() }));
    assert_eq!(Service.handle(&pool, &event(1)).await?, Outcome::Replayed(Answer { text: "1".into() }));
    assert!(matches!(Service.handle(&pool, &event(2)).await, Err(Error::FingerprintMismatch(_))));
    assert!(Arc::new(Service).method(&pool, event(3)).await?.is_processed());
    assert!(stream(&pool, "orders", 0, 1).await?.is_processed());
    let spawned = tokio::spawn({
        let pool = pool.clone();
        async move { generic(&pool, "1", &SystemTime::now(), 1_u16).await }
    });
    assert_eq!(spawned.await.unwrap()?, Outcome::Processed(b"1".to_vec()));
    assert!(cow(&pool, &event(1)).await?.is_processed());
    assert_eq!(cow(&pool, &event(2)).await?, Outcome::Replayed(Cow::Borrowed("1")));
    let spawned = tokio::spawn({
        let pool = pool.clone();
        async move { only_send(&pool, "1", Cell::new(7)).await }
    });
    assert_eq!(spawned.await.unwrap()?, Outcome::Processed(Cell::new(7)));
    over_any_database(&pool);
    assert!(optional(&pool, Some("1"), 1, None).await?.is_processed());
    Ok(())
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[tokio::main]
async fn main() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    idempotent_runtime::migrate(&pool).await.unwrap();
    run(pool).await.unwrap();
}
