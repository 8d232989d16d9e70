//! M8: parameters are dropped in the order in which a plain `async fn` drops them, and before the transaction ends.

use std::cell::RefCell;

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;
use sqlx::sqlite::SqlitePoolOptions;

thread_local! {
    static DROPPED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

struct DropLogger(&'static str);

impl Drop for DropLogger {
    fn drop(&mut self) {
        DROPPED.with_borrow_mut(|dropped| dropped.push(self.0));
    }
}

struct Pair {
    left: DropLogger,
    right: DropLogger,
}

fn dropped() -> Vec<&'static str> {
    DROPPED.take()
}

async fn plain(
    first: DropLogger,
    _: DropLogger,
    _unused: DropLogger,
    Pair { left, .. }: Pair,
    mut last: DropLogger,
) -> sqlx::Result<()> {
    let _local = DropLogger("local");
    drop(left);
    last.0 = "last";
    let _ = &first;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn handler(
    tx: &mut SqliteTransaction<'_>,
    id: u8,
    first: DropLogger,
    _: DropLogger,
    _unused: DropLogger,
    Pair { left, .. }: Pair,
    mut last: DropLogger,
) -> sqlx::Result<()> {
    let _local = DropLogger("local");
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    drop(left);
    last.0 = "last";
    let _ = &first;
    Ok(())
}

async fn unused_plain(_: DropLogger, _a: DropLogger, _b: DropLogger) {
    let _local = DropLogger("local");
}

#[idempotent(key = "{id}")]
async fn unused(
    _: &mut SqliteTransaction<'_>,
    id: u8,
    _: DropLogger,
    _a: DropLogger,
    _b: DropLogger,
) -> sqlx::Result<()> {
    let _local = DropLogger("local");
    Ok(())
}

fn pair() -> Pair {
    Pair { left: DropLogger("left"), right: DropLogger("right") }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    idempotent_runtime::migrate(&pool).await.unwrap();

    let log = DropLogger;
    plain(log("first"), log("wild"), log("unused"), pair(), log("?")).await.unwrap();
    let expected = dropped();
    assert_eq!(expected[..2], ["left", "local"]);
    let outcome = handler(&pool, 1, log("first"), log("wild"), log("unused"), pair(), log("?")).await.unwrap();
    assert!(outcome.is_processed());
    let mut got = dropped();
    // What a pattern leaves in its parameter is dropped with the parameters that the body does not see.
    let rest = got.iter().position(|name| *name == "right").unwrap();
    got.remove(rest);
    assert_eq!(got, expected.into_iter().filter(|name| *name != "right").collect::<Vec<_>>());

    unused_plain(log("wild"), log("a"), log("b")).await;
    let expected = dropped();
    assert_eq!(expected, ["local", "b", "a", "wild"]);
    unused(&pool, 1, log("wild"), log("a"), log("b")).await.unwrap();
    assert_eq!(dropped(), expected);
}
