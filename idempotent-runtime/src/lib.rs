//! Run an async message handler once per key: claim and effect commit in one sqlx transaction; every other
//! delivery of the same message is recognised, acknowledged and skipped.
//!
//! ```
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # mod example {
//! use idempotent_runtime::{Outcome, idempotent};
//! use sqlx::{SqlitePool, SqliteTransaction};
//!
//! struct CreditGranted { id: String, account: i64, cents: i64 }
//!
//! /// Adds the credit to the account.
//! #[idempotent(key = "{event.id}")]
//! async fn grant_credit(
//!     tx: &mut SqliteTransaction<'_>,
//!     event: &CreditGranted,
//! ) -> sqlx::Result<()> {
//!     sqlx::query("UPDATE account SET cents = cents + ? WHERE id = ?")
//!         .bind(event.cents)
//!         .bind(event.account)
//!         .execute(&mut **tx)
//!         .await?;
//!     Ok(())
//! }
//!
//! async fn on_message(pool: &SqlitePool, event: &CreditGranted) -> sqlx::Result<()> {
//!     // The first delivery does the work, every other one is skipped. Ok: acknowledge.
//!     grant_credit(pool, event).await?;
//!     Ok(())
//! }
//! # }
//! ```
//!
//! # What is promised
//!
//! Effectively once for every effect made through the handler's transaction, at least once for everything else, as long
//! as the database keeps what it has acknowledged (asynchronous failover, or PostgreSQL's `synchronous_commit = off`, may
//! lose it). [`Outcome::Processed`] means that claim and effect were alive together when the body returned and were
//! committed together.
//!
//! # Late redeliveries
//!
//! A claim is deleted some time after its retention is over, and a message that comes still later would be taken for new.
//! With `occurred_at`, the producer's own timestamp, it is not: what is older than the retention and has no claim is not
//! run, and a claim lives until `occurred_at` + `retention`. So storage is bounded, and no redelivery is ever taken for a
//! new message. The age is judged by the database's clock, after the claim was inserted.
//!
//! ```
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # mod example {
//! use idempotent_runtime::{Disposition, Error, UnixSeconds, idempotent};
//! # use sqlx::{SqlitePool, SqliteTransaction};
//!
//! struct Event { id: String, created: UnixSeconds } // as Stripe has it
//!
//! #[idempotent(key = "{event.id}", retention = "7d", occurred_at = "event.created")]
//! async fn on_event(tx: &mut SqliteTransaction<'_>, event: &Event) -> Result<(), Error> {
//!     // …
//! # let _ = (tx, event);
//!     Ok(())
//! }
//!
//! # pub async fn run() -> Result<(), Error> {
//! # let pool = SqlitePool::connect("sqlite::memory:").await?;
//! # idempotent_runtime::migrate(&pool).await?;
//! let of_2020 = Event { id: "evt_1".into(), created: UnixSeconds(1_577_836_800) };
//! let error = on_event(&pool, &of_2020).await.unwrap_err();
//! assert!(matches!(error, Error::Expired(_)));
//! // New after an outage, or old: a person can tell.
//! assert_eq!(error.disposition(), Disposition::DeadLetter);
//! # Ok(())
//! # }
//! # }
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # #[tokio::main]
//! # async fn main() { example::run().await.unwrap() }
//! # #[cfg(not(all(feature = "sqlite", feature = "macros")))]
//! # fn main() {}
//! ```
//!
//! `expired = "skip"` acknowledges such a message instead, as [`Outcome::Expired`]:
//!
//! ```
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # mod example {
//! # use idempotent_runtime::{Error, Outcome, UnixMillis, idempotent};
//! # use sqlx::{SqlitePool, SqliteTransaction};
//! #[idempotent(key = "{id}", retention = "1h", occurred_at = "at", expired = "skip")]
//! async fn show(
//!     tx: &mut SqliteTransaction<'_>,
//!     id: &str,
//!     at: UnixMillis, // as a Kafka record has it
//! ) -> Result<(), Error> {
//!     // …
//! # let _ = (tx, id, at);
//!     Ok(())
//! }
//!
//! # pub async fn run() -> Result<(), Error> {
//! # let pool = SqlitePool::connect("sqlite::memory:").await?;
//! # idempotent_runtime::migrate(&pool).await?;
//! let outcome = show(&pool, "evt_1", UnixMillis(1_577_836_800_000)).await?;
//! assert!(matches!(outcome, Outcome::Expired(_)));
//! # Ok(())
//! # }
//! # }
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # #[tokio::main]
//! # async fn main() { example::run().await.unwrap() }
//! # #[cfg(not(all(feature = "sqlite", feature = "macros")))]
//! # fn main() {}
//! ```
//!
//! A timestamp more than a day ahead of the database's clock is [`Error::OccurredInFuture`]: mostly it is in another unit.
//! [`Timestamp`] says which types are points in time.
//!
//! # Order
//!
//! With `sequence` a message runs only if its number is above the one that was applied last for the same consumer, sender
//! and entity; otherwise it is [`Outcome::Stale`], and leaves no claim. So versions that arrive in any order end in the newest
//! one. Numbers are versions, offsets or timestamps, see [`SequenceNumber`]; there may be gaps. How far an entity has come
//! is kept for ever, in the table `processed_messages_positions`.
//!
//! ```
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # mod example {
//! # use idempotent_runtime::{Error, Outcome, idempotent};
//! # use sqlx::{SqlitePool, SqliteTransaction};
//! struct Update { id: String, order: String, version: u32 }
//!
//! #[idempotent(
//!     key = "{update.id}",
//!     sequence(entity = "{update.order}", number = "update.version"),
//! )]
//! async fn set_state(tx: &mut SqliteTransaction<'_>, update: &Update) -> Result<(), Error> {
//!     // …
//! # let _ = (tx, update);
//!     Ok(())
//! }
//!
//! # pub async fn run() -> Result<(), Error> {
//! # let pool = SqlitePool::connect("sqlite::memory:").await?;
//! # idempotent_runtime::migrate(&pool).await?;
//! let update = |id: &str, version| Update { id: id.into(), order: "order-7".into(), version };
//! assert!(set_state(&pool, &update("b", 2)).await?.is_processed());
//! assert!(matches!(set_state(&pool, &update("a", 1)).await?, Outcome::Stale(_)));
//! assert!(matches!(set_state(&pool, &update("b", 2)).await?, Outcome::Duplicate(_)));
//! # Ok(())
//! # }
//! # }
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # #[tokio::main]
//! # async fn main() { example::run().await.unwrap() }
//! # #[cfg(not(all(feature = "sqlite", feature = "macros")))]
//! # fn main() {}
//! ```
//!
//! Without `key`, `sequence` alone decides. That commits the offset of a stream with the data, which [Kafka's documentation]
//! calls storing offsets outside Kafka, and [`ClaimStore::position`] says where to go on:
//!
//! ```
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # mod example {
//! # use idempotent_runtime::{ClaimStore, Error, idempotent};
//! # use sqlx::{SqlitePool, SqliteTransaction};
//! # struct Record { topic: &'static str, partition: i32, offset: i64 }
//! #[idempotent(
//!     consumer = "warehouse.stock",
//!     sequence(entity = "{record.topic}/{record.partition}", number = "record.offset"),
//! )]
//! async fn apply(tx: &mut SqliteTransaction<'_>, record: &Record) -> Result<(), Error> {
//!     // …
//! # let _ = (tx, record);
//!     Ok(())
//! }
//!
//! # pub async fn run() -> Result<(), Error> {
//! # let pool = SqlitePool::connect("sqlite::memory:").await?;
//! let store = ClaimStore::new(pool);
//! # store.migrate().await?;
//! apply(&store, &Record { topic: "orders", partition: 0, offset: 41 }).await?;
//! let applied = store.position("warehouse.stock", "", "orders/0").await?;
//! assert_eq!(applied, Some(41)); // after a restart: seek to 42
//! # Ok(())
//! # }
//! # }
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # #[tokio::main]
//! # async fn main() { example::run().await.unwrap() }
//! # #[cfg(not(all(feature = "sqlite", feature = "macros")))]
//! # fn main() {}
//! ```
//!
//! [Kafka's documentation]: https://kafka.apache.org/26/javadoc/org/apache/kafka/clients/consumer/KafkaConsumer.html
//!
//! # The first answer again
//!
//! An API with an `Idempotency-Key` header (the [IETF's draft], [Stripe]) gives a retry the first answer, and refuses a key that
//! comes with another request. `replay` (feature `replay`) stores what the handler returned, as JSON, in the transaction of the
//! claim, and a duplicate gets it as [`Outcome::Replayed`]. `fingerprint` says what the key stands for; the same key with
//! another content is [`Error::FingerprintMismatch`], whose [`http_status`](Error::http_status) is 422.
//!
//! ```
//! # #[cfg(all(feature = "sqlite", feature = "macros", feature = "replay"))]
//! # mod example {
//! # use idempotent_runtime::{Error, Outcome, idempotent};
//! # use sqlx::{SqlitePool, SqliteTransaction};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! struct Receipt { payment: i64 }
//!
//! #[idempotent(key = "{key}", sender = "{account}", fingerprint = "{to}/{cents}", replay)]
//! async fn pay(
//!     tx: &mut SqliteTransaction<'_>,
//!     account: &str,
//!     key: &str,
//!     to: &str,
//!     cents: i64,
//! ) -> Result<Receipt, Error> {
//!     // …
//! # let _ = (tx, account, key, to, cents);
//!     Ok(Receipt { payment: 1 })
//! }
//!
//! # pub async fn run() -> Result<(), Error> {
//! # let pool = SqlitePool::connect("sqlite::memory:").await?;
//! # idempotent_runtime::migrate(&pool).await?;
//! let first = pay(&pool, "alice", "k1", "shop", 1200).await?;
//! assert_eq!(first, Outcome::Processed(Receipt { payment: 1 }));
//! let again = pay(&pool, "alice", "k1", "shop", 1200).await?;
//! assert_eq!(again, Outcome::Replayed(Receipt { payment: 1 }));
//! let error = pay(&pool, "alice", "k1", "shop", 9900).await.unwrap_err();
//! assert!(matches!(error, Error::FingerprintMismatch(_)));
//! assert_eq!(error.http_status(), 422);
//! # Ok(())
//! # }
//! # }
//! # #[cfg(all(feature = "sqlite", feature = "macros", feature = "replay"))]
//! # #[tokio::main]
//! # async fn main() { example::run().await.unwrap() }
//! # #[cfg(not(all(feature = "sqlite", feature = "macros", feature = "replay")))]
//! # fn main() {}
//! ```
//!
//! Only `Ok` is stored: what a failed run returned is rolled back with it, and a retry runs. An answer that is decided and yet
//! no success, such as a declined payment, is therefore an `Ok` value. At most 1 MiB of JSON is stored, unless
//! [`ClaimStoreBuilder::max_stored_value`] says otherwise; [`ReplayError`] says what can go wrong. Stored values are in no
//! log and in no `Debug` text. Of the fingerprint only a digest is stored. The example `payments_api` is a whole server.
//!
//! [IETF's draft]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07
//! [Stripe]: https://docs.stripe.com/api/idempotent_requests
//!
#![doc = include_str!("../docs/rivals.md")]
//!
//! # What is decided first
//!
//! | | the message | the caller gets |
//! |---|---|---|
//! | 1 | has no key, no entity, or a number beyond 64 bits; no SQL is run | [`Error::MissingKey`], [`Error::NumberOutOfRange`] |
//! | 2 | has a claim, be it past its expiry, made with another `fingerprint` | [`Error::FingerprintMismatch`] |
//! | 3 | has a claim | [`Outcome::Replayed`] with `replay`, else [`Outcome::Duplicate`] |
//! | 4 | is from more than a day ahead by `occurred_at` | [`Error::OccurredInFuture`] |
//! | 5 | is older than the retention by `occurred_at` | [`Error::Expired`], or [`Outcome::Expired`] with `expired = "skip"` |
//! | 6 | is not newer than what was applied to its entity | [`Outcome::Stale`] |
//! | 7 | is none of these: the body runs | [`Outcome::Processed`], or its error |
//!
//! Only what runs and returns `Ok` leaves a claim, a position and a value.
//!
//! # Errors
//!
//! `Ok(_)` means: acknowledge the message. `Err(_)` means: do not; [`Error::find`] finds this library's [`Error`] in the
//! handler's own, and [`Error::disposition`] says whether to let the message be redelivered or to park it.
//!
//! # Old claims
//!
//! A claim counts until it is deleted: run a [`Janitor`], or call [`ClaimStore::purge`]. [`guide::adoption`] is about tables
//! that hand-written code has filled.
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `macros` (default) | `#[idempotent]` and `#[derive(KeyPart)]` |
//! | `postgres`, `mysql`, `sqlite` | the databases; `mysql` is for MariaDB too |
//! | `replay` | stored answers, as JSON |
//! | `serde` | [`UnixSeconds`] and [`UnixMillis`] as fields of messages; `replay` includes it |
//! | `uuid`, `chrono`, `time` | key parts of `Uuid`, `NaiveDate`, `Date`; timestamps of `DateTime`, `OffsetDateTime` |
//! | `metrics` | [counters, durations and gauges](guide::observability) |
//! | `testing` | [tests of handlers](https://docs.rs/idempotent-runtime/latest/idempotent_runtime/testing) by the checklist of the pattern |
//!
//! The async runtime and TLS are chosen on sqlx.
//!
//! Before production, read the [guide]: retention, sizing, dead letters, effects outside the database,
//! observability.

#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code, unused_imports, unused_macros, reason = "what the databases share is of no use without one")
)]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

mod adoption;
mod batch;
mod catalog;
mod claim;
mod committed;
mod database;
mod error;
pub mod guide;
mod janitor;
mod key;
mod key_part;
mod lent;
mod message;
mod migrate;
mod observe;
mod outcome;
mod process;
mod purge;
mod replay;
mod run;
mod seen;
mod sequence;
mod source;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod timestamp;
mod transient;

pub use adoption::{Adopted, Adoption};
pub use batch::{Batch, ItemOutcome};
pub use catalog::{Catalog, Handler, catalog};
pub use claim::{Claim, Claimed};
pub use committed::{CatalogChange, CatalogChanged, Identities};
pub use database::Database;
pub use error::{Disposition, Error, TransactionLost};
#[cfg(feature = "macros")]
pub use idempotent_macros::{KeyPart, idempotent};
pub use janitor::{Janitor, JanitorHandle};
pub use key::{Key, PartWriter};
pub use key_part::{KeyPart, OptionalKeyPart};
pub use migrate::migrate;
#[cfg(feature = "metrics")]
pub use observe::describe_metrics;
pub use outcome::{Duplicate, Expired, FingerprintMismatch, InProgress, OccurredInFuture, Outcome};
pub use purge::{PurgeEnd, PurgeOptions, Purged};
pub use replay::{ReplayError, ReplayValue};
pub use sequence::{SequenceNumber, Stale};
pub use source::{IntoSource, IntoSourceFor, Lent, Source};
pub use store::{ClaimStore, ClaimStoreBuilder, commit};
pub use timestamp::{Timestamp, UnixMillis, UnixSeconds};
pub use transient::{RetryArgument, Transient};

/// How many cases a property is tried on: `long` with `IDEMPOTENT_TEST_LONG=1`.
#[cfg(test)]
fn test_cases(ordinary: u32, long: u32) -> u32 {
    let cases = if std::env::var_os("IDEMPOTENT_TEST_LONG").is_some() { long } else { ordinary };
    println!("{cases} cases");
    cases
}
