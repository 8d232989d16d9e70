//! Tests of handlers, by the checklist of the pattern. Feature `testing`.
//!
//! A handler is right if it can be delivered twice, at once, and broken off at any point, and has one effect in the
//! end. [`Kit::check`] does all of that to it in a test's own database, and watches every table:
//!
//! ```
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # mod example {
//! use idempotent_runtime::idempotent;
//! use idempotent_runtime::testing::{Failure, Kit};
//! use sqlx::{SqlitePool, SqliteTransaction};
//!
//! #[idempotent(key = "{id}")]
//! async fn credit(tx: &mut SqliteTransaction<'_>, id: &str) -> sqlx::Result<()> {
//!     sqlx::query("INSERT INTO credits VALUES (5)").execute(&mut **tx).await?;
//!     Ok(())
//! }
//!
//! # const _: &str = stringify! {
//! #[sqlx::test] // or #[tokio::test] with a pool of your own
//! # };
//! # pub
//! async fn crediting_is_idempotent(pool: SqlitePool) -> Result<(), Failure> {
//! # idempotent_runtime::migrate(&pool).await?;
//! # sqlx::query("CREATE TABLE credits (cents INTEGER)").execute(&pool).await.unwrap();
//!     let deliver = async |n| credit(&pool, &format!("evt_{n}")).await;
//!     Kit::new(&pool).check(deliver).await
//! }
//! # }
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # #[tokio::main]
//! # async fn main() {
//! #     let pool = sqlx::SqlitePool::connect("sqlite::memory:").await.unwrap();
//! #     example::crediting_is_idempotent(pool).await.unwrap();
//! # }
//! # #[cfg(not(all(feature = "sqlite", feature = "macros")))]
//! # fn main() {}
//! ```
//!
//! The closure stands for the consumer: it takes a message's number and does what a delivery does, with everything around
//! the handler too. The same number is the same message, other numbers are other messages *of the same kind*, whose
//! effects are as large.
//!
//! # Batches
//!
//! A handler with `each` is checked in the same way: the number stands for a batch, and makes the keys of its items.
//!
//! ```
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # mod example {
//! # use idempotent_runtime::idempotent;
//! # use idempotent_runtime::testing::{Failure, Kit};
//! # use sqlx::{SqlitePool, SqliteTransaction};
//! #[idempotent(key = "{id}", each = "id in ids")]
//! async fn credit_all(
//!     tx: &mut SqliteTransaction<'_>,
//!     ids: Vec<String>,
//! ) -> sqlx::Result<()> {
//!     for _ in ids {
//!         sqlx::query("INSERT INTO credits VALUES (5)").execute(&mut **tx).await?;
//!     }
//!     Ok(())
//! }
//!
//! # pub async fn check(pool: SqlitePool) -> Result<(), Failure> {
//! # idempotent_runtime::migrate(&pool).await?;
//! # sqlx::query("CREATE TABLE credits (cents INTEGER)").execute(&pool).await.unwrap();
//! let ids = |n| vec![format!("evt_{n}"), format!("evt_{}", n + 1)];
//! let deliver = async |n| credit_all(&pool, ids(n)).await;
//! Kit::new(&pool).check(deliver).await
//! # }
//! # }
//! # #[cfg(all(feature = "sqlite", feature = "macros"))]
//! # #[tokio::main]
//! # async fn main() {
//! #     example::check(sqlx::SqlitePool::connect("sqlite::memory:").await.unwrap()).await.unwrap();
//! # }
//! # #[cfg(not(all(feature = "sqlite", feature = "macros")))]
//! # fn main() {}
//! ```
//!
//! A batch has run if one of its items was processed, and is recognised if none was. These overlap: each has an item of
//! the one before. A body that works on its old items too then fails at a unique key; where there is none,
//! [`fresh_only`](Kit::fresh_only) finds it.
//!
//! # What is found
//!
//! | mistake | by | the failure says |
//! |---|---|---|
//! | an effect outside the handler's transaction | [`twice`](Kit::twice), [`refused`](Kit::refused), [`uncommitted`](Kit::uncommitted), [`interrupted`](Kit::interrupted) | which table, and its rows before and after |
//! | the error of a statement is ignored | [`refused`](Kit::refused) | which table refused the write, and what the delivery said |
//! | a part of the key is made on delivery | [`twice`](Kit::twice) | both claims |
//! | a mail, or a request, sent before the commit | [`refused`](Kit::refused), [`uncommitted`](Kit::uncommitted), [`interrupted`](Kit::interrupted), with a [`Recorder`] | what was sent |
//! | the caller acknowledges what was not committed | [`uncommitted`](Kit::uncommitted) | what the delivery came to |
//! | a batch's body works on old items too | [`fresh_only`](Kit::fresh_only) | which tables it changes |
//! | a delivery without an end | all, after its [`patience`](Kit::patience) | which delivery |
//! | a delivery of which the test sees no effect | all | that it proves nothing |
//!
//! # The outside world
//!
//! What a handler sends is watched through a [`Recorder`], which the test's fake client writes to. The library for stubs
//! is your choice; of [wiremock](https://docs.rs/wiremock), a `Respond` that records each request will do.
//!
//! # Limits
//!
//! - Every table of the database (on PostgreSQL: of every schema) is read before and after each delivery, apart from those
//!   of the claims. PostgreSQL, MariaDB and MySQL count the rows and make the digest themselves; SQLite's rows
//!   are read into the test. The digest does not depend on the order of rows. With more than about a million rows leave
//!   a table out: [`without_table`](Kit::without_table).
//! - An update that leaves every value as it was is not seen.
//! - Use a database of the test's own. [`refused`](Kit::refused) creates triggers (on MariaDB and MySQL that needs
//!   the privilege `TRIGGER`, and with a binary log `log_bin_trust_function_creators`), and [`aged`](Kit::aged) deletes
//!   claims.
//! - Deliveries run on the task of the test, none is spawned. What a handler spawns is not seen before it is done; where
//!   the consumer spawns the handler itself, no commit is made to fail and nothing is broken off.
//! - Statements that were cut off are waited for until the pool has its connections back, for a second at most. One that
//!   takes longer, or runs on another pool, may be missed by [`interrupted`](Kit::interrupted).
//! - Where a delivery awaits, and so where it can be broken off, is the network's to say. Each point is tried, and not each
//!   time the same ones.
//! - [`fresh_only`](Kit::fresh_only) compares contents: what a body writes beside the moment, or beside a number that the
//!   database draws, always differs, and is not found.
//! - An in-memory SQLite pool needs `max_connections(1)`, as everywhere.

mod delivered;
mod deliveries;
mod failure;
mod inspect;
mod kit;
mod notes;
mod recorder;
mod state;
mod verdicts;

pub use delivered::Delivered;
pub use failure::Failure;
#[doc(hidden)]
pub use inspect::Inspect;
pub use kit::{Aged, Kit};
pub(crate) use notes::{Note, looked_into, note, refuses_commit, withheld};
pub use recorder::Recorder;
