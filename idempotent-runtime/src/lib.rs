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
//! async fn grant_credit(tx: &mut SqliteTransaction<'_>, event: &CreditGranted) -> sqlx::Result<()> {
//!     sqlx::query("UPDATE account SET cents = cents + ? WHERE id = ?")
//!         .bind(event.cents)
//!         .bind(event.account)
//!         .execute(&mut **tx)
//!         .await?;
//!     Ok(())
//! }
//!
//! async fn on_message(pool: &SqlitePool, event: &CreditGranted) -> sqlx::Result<()> {
//!     grant_credit(pool, event).await?; // Ok: acknowledge. The first delivery works, every other one is skipped.
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
//! `macros` (default), `postgres`, `mysql` (MariaDB too), `sqlite`; `uuid`, `chrono`, `time` for key parts of their types; `metrics`
//! for counters. The async runtime and TLS are chosen on sqlx.

#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code, reason = "what the databases share is of no use without one")
)]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

mod adoption;
mod catalog;
mod claim;
mod database;
mod error;
pub mod guide;
mod janitor;
mod key;
mod key_part;
mod lent;
mod migrate;
mod observe;
mod outcome;
mod process;
mod purge;
mod source;
mod store;

pub use adoption::{Adopted, Adoption};
pub use catalog::{Catalog, Handler, catalog};
pub use claim::{Claim, Claimed};
pub use database::Database;
pub use error::{Disposition, Error, InProgress, TransactionLost};
#[cfg(feature = "macros")]
pub use idempotent_macros::{KeyPart, idempotent};
pub use janitor::{Janitor, JanitorHandle};
pub use key::{Key, PartWriter};
pub use key_part::{KeyPart, OptionalKeyPart};
pub use migrate::migrate;
pub use outcome::{Duplicate, Outcome};
pub use purge::{PurgeEnd, PurgeOptions, Purged};
pub use source::Source;
pub use store::{ClaimStore, ClaimStoreBuilder, commit};
