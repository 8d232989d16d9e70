//! `each`, `wait`, `retry` and `isolation`, in every place where a handler may stand.

#![deny(warnings, clippy::pedantic)]

use std::error::Error as StdError;
use std::fmt::{self, Display, Formatter};
use std::rc::Rc;
use std::sync::Arc;

use idempotent_runtime::{
    Batch, Claim, ClaimStore, Error, ItemOutcome, KeyPart, Outcome, Source, Timestamp, Transient, UnixMillis,
    idempotent,
};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Sqlite, SqliteConnection, SqlitePool, SqliteTransaction};

use ItemOutcome::{Duplicate, Processed};

#[derive(Clone)]
struct Event {
    id: String,
    created: UnixMillis,
    pair: (u32, i64),
}

impl Event {
    fn version(&self) -> i64 {
        self.pair.1
    }
}

fn event(id: &str, version: i64) -> Event {
    Event { id: id.into(), created: UnixMillis(4_000_000_000_000), pair: (1, version) }
}

/// Not `Clone`: a batch without `retry` does not need it.
struct Once(u64);

#[derive(Clone)]
struct Service {
    tenant: String,
}

type Tx<'a> = SqliteTransaction<'a>;
type Many<T> = Result<T, Error>;

#[idempotent(key = "{item.0}", each = "item in items")]
async fn not_cloned(_tx: &mut SqliteTransaction<'_>, mut items: Vec<Once>) -> sqlx::Result<u64> {
    items.truncate(1);
    Ok(items.pop().map_or(0, |Once(id)| id))
}

#[idempotent(
    key = "{event.id}/{event.pair.0}",
    each = "event in events",
    sender = "{tenant}",
    sequence(entity = "{event.pair.0}", number = "event.version()"),
    retry = 3,
    wait = "250ms",
    isolation = "serializable",
    consumer = "any.everything"
)]
async fn everything(
    _tx: &mut SqliteConnection,
    tenant: &str,
    mut events: Vec<Event>,
    claims: &[Claim],
) -> Result<Vec<String>, Error> {
    assert!(claims.iter().all(|claim| claim.sender() == tenant));
    assert_eq!(claims.len(), events.len());
    Ok(events.drain(..).map(|event| event.id).collect())
}

impl Service {
    /// Documented.
    ///
    /// # Errors
    ///
    /// Those of the database.
    #[idempotent(key = "{self.tenant}:{id}", each = "id in ids", wait = "0s", retry = 1)]
    pub async fn method(&self, _tx: &mut SqliteTransaction<'_>, ids: Vec<u64>) -> sqlx::Result<usize> {
        Ok(ids.len())
    }

    #[idempotent(key = "{id}", retry = 2, consumer = "any.arc")]
    async fn shared(self: &Arc<Self>, _tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<String> {
        Ok(format!("{}{id}", self.tenant))
    }

    #[idempotent(key = "{id}", each = "id in ids", consumer = "any.mutable")]
    async fn mutable(&mut self, _tx: &mut SqliteTransaction<'_>, ids: Vec<u64>) -> sqlx::Result<()> {
        self.tenant.push_str(&ids.len().to_string());
        Ok(())
    }

    #[idempotent(key = "{id}", each = "id in ids", consumer = "any.owned")]
    async fn owned(self, _tx: &mut SqliteTransaction<'_>, ids: Vec<u64>) -> sqlx::Result<String> {
        drop(ids);
        Ok(self.tenant)
    }
}

trait Handles {
    async fn handle(
        &self,
        source: impl Into<Source<'_, Sqlite>> + Send,
        events: Vec<Event>,
    ) -> Result<Batch<()>, Error>;
}

impl Handles for Service {
    #[idempotent(key = "{event.id}", each = "event in events", retry = 1, isolation = "read committed")]
    async fn handle(&self, _tx: &mut SqliteTransaction<'_>, events: Vec<Event>) -> Result<(), Error> {
        drop(events);
        Ok(())
    }
}

#[idempotent(key = "{r#type}", each = "r#type in r#in", consumer = "any.alias")]
async fn alias(#[tx] tx: &mut Tx<'_>, r#in: Vec<&str>) -> Many<usize> {
    not_cloned(&mut *tx, vec![Once(1000)]).await?;
    Ok(r#in.len())
}

#[idempotent(key = "{item}", each = "item in items", retry = 2)]
async fn generic<T: KeyPart + Clone + Sync, F: Fn(&T) -> String + Clone>(
    _tx: &mut SqliteTransaction<'_>,
    items: Vec<T>,
    show: F,
    prefix: impl Display + Clone,
) -> Result<Vec<String>, Error> {
    Ok(items.iter().map(|item| format!("{prefix}{}", show(item))).collect())
}

#[idempotent(key = "{at.0}", each = "at in ats", occurred_at = "at.1", expired = "skip")]
async fn dated<T: Timestamp + Sync>(_tx: &mut SqliteTransaction<'_>, ats: Vec<(u8, T)>) -> Result<usize, Error> {
    Ok(ats.len())
}

#[idempotent(key = "{id}", each = "id in ids", missing = "process", consumer = "any.optional")]
async fn optional(_tx: &mut SqliteTransaction<'_>, ids: Vec<Option<u8>>) -> Result<usize, Error> {
    Ok(ids.len())
}

/// Patterns, of which the parts are cloned, and names that are not used.
#[idempotent(key = "{id}", retry = 1, consumer = "any.pattern")]
async fn pattern(
    _tx: &mut SqliteTransaction<'_>,
    (id, mut list): (u8, Vec<u8>),
    Event { pair, .. }: &Event,
    _: Arc<str>,
    _ignored: String,
) -> Result<usize, Error> {
    list.push(id);
    Ok(list.len() + pair.0 as usize)
}

macro_rules! batch_handler {
    ($name:ident, $consumer:literal, $item:ident in $items:ident: $ty:ty, $key:literal, $each:literal, $times:literal) => {
        #[idempotent(key = $key, each = $each, consumer = $consumer, retry = $times, wait = "1s")]
        async fn $name(tx: &mut SqliteTransaction<'_>, $items: Vec<$ty>, claims: &[Claim]) -> sqlx::Result<usize> {
            let _ = tx;
            assert_eq!(claims.len(), $items.len());
            Ok($items.len())
        }
    };
}

batch_handler!(by_macro, "any.macro", event in events: Event, "{event.id}", "event in events", 2);

/// Says itself whether to run again.
#[derive(Debug)]
enum Own {
    Ours(Error),
    Busy,
}

impl From<Error> for Own {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

impl Transient for Own {
    fn is_transient(&self) -> bool {
        match self {
            Self::Ours(error) => error.is_transient(),
            Self::Busy => true,
        }
    }
}

/// An error, and `Transient` too: what it says itself counts.
#[derive(Debug)]
struct Both;

impl Display for Both {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("both")
    }
}

impl StdError for Both {}

impl From<Error> for Both {
    fn from(_: Error) -> Self {
        Self
    }
}

impl Transient for Both {
    fn is_transient(&self) -> bool {
        true
    }
}

#[idempotent(key = "{id}", retry = 3, consumer = "any.own")]
async fn own(_tx: &mut SqliteTransaction<'_>, id: &str, left: &std::sync::atomic::AtomicU8) -> Result<(), Own> {
    if left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 1 { Err(Own::Busy) } else { Ok(()) }
}

#[idempotent(key = "{id}", retry = 3, consumer = "any.both")]
async fn both(_tx: &mut SqliteTransaction<'_>, id: &str, left: &std::sync::atomic::AtomicU8) -> Result<(), Both> {
    if left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 1 { Err(Both) } else { Ok(()) }
}

#[idempotent(key = "{id}", retry = 1, consumer = "any.boxed")]
async fn boxed(_tx: &mut SqliteTransaction<'_>, id: &str) -> Result<(), Box<dyn StdError + Send + Sync>> {
    Ok(())
}

#[idempotent(key = "{id}", retry = 1, consumer = "any.generic-error")]
async fn generic_error<E: StdError + From<Error> + 'static>(
    _tx: &mut SqliteTransaction<'_>,
    id: &str,
) -> Result<(), E> {
    Ok(())
}

/// Neither its arguments nor its error can be sent, and it is not spawned.
#[idempotent(key = "{id}", retry = 1, consumer = "any.local")]
async fn local(_tx: &mut SqliteTransaction<'_>, id: Rc<str>) -> Result<Rc<str>, Box<dyn StdError>> {
    Ok(id)
}

async fn run(pool: SqlitePool) -> Result<(), Error> {
    let outcome: Batch<u64> = not_cloned(&pool, vec![Once(1), Once(2), Once(1)]).await?;
    assert_eq!(outcome, Batch { output: Some(1), outcomes: vec![Processed, Processed, Duplicate] });
    assert_eq!(not_cloned(&pool, Vec::new()).await?, Batch { output: None, outcomes: Vec::new() });

    let everything = everything(&pool, "t", vec![event("a", 1), event("b", 3), event("a", 1), event("c", 2)]).await?;
    assert_eq!(everything.output, Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(everything.outcomes, [Processed, Processed, Duplicate, ItemOutcome::Stale]);

    let mut service = Service { tenant: "t".into() };
    assert_eq!(service.method(&pool, vec![1, 2]).await?.output, Some(2));
    assert_eq!(Arc::new(service.clone()).shared(&pool, 1).await?, Outcome::Processed("t1".to_owned()));
    assert_eq!(service.mutable(&pool, vec![1]).await?.output, Some(()));
    assert_eq!(service.handle(&pool, vec![event("a", 1)]).await?.outcomes, [Processed]);
    assert_eq!(service.owned(&ClaimStore::new(pool.clone()), vec![1]).await?.output, Some("t1".to_owned()));

    assert_eq!(alias(&pool, vec!["x", "x"]).await?.outcomes, [Processed, Duplicate]);
    assert_eq!(not_cloned(&pool, vec![Once(1000)]).await?.outcomes, [Duplicate]);
    assert_eq!(by_macro(&pool, vec![event("a", 1)]).await?.output, Some(1));
    assert_eq!(dated(&pool, vec![(1, UnixMillis(0))]).await?.outcomes, [ItemOutcome::Expired]);
    assert_eq!(optional(&pool, vec![None, Some(1), None]).await?.output, Some(3));
    assert_eq!(pattern(&pool, (1, vec![]), &event("a", 1), "a".into(), String::new()).await?, Outcome::Processed(2));

    let left = std::sync::atomic::AtomicU8::new(3);
    assert!(own(&pool, "1", &left).await.unwrap().is_processed());
    left.store(3, std::sync::atomic::Ordering::Relaxed);
    assert!(both(&pool, "1", &left).await.unwrap().is_processed());
    assert!(boxed(&pool, "1").await.unwrap().is_processed());
    assert!(generic_error::<Error>(&pool, "1").await?.is_processed());
    assert_eq!(local(&pool, "1".into()).await.unwrap(), Outcome::Processed("1".into()));

    let spawned = tokio::spawn({
        let pool = pool.clone();
        async move {
            let show = |item: &u8| item.to_string();
            generic(&pool, vec![1_u8, 2, 1], show, "-").await
        }
    });
    assert_eq!(spawned.await.unwrap()?.output, Some(vec!["-1".to_owned(), "-2".to_owned()]));
    Ok(())
}

#[tokio::main]
async fn main() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    idempotent_runtime::migrate(&pool).await.unwrap();
    run(pool).await.unwrap();
}
