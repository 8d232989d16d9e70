//! M15: the future is `Send` whenever the body's is, for generic handlers and for methods of traits too.

#![deny(warnings)]

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use idempotent_runtime::{ClaimStore, KeyPart, Outcome, Source, idempotent};
use sqlx::{Connection as _, Database, Sqlite, SqliteConnection, SqlitePool, SqliteTransaction};

pub struct Event<T> {
    id: T,
}

#[idempotent(key = "{id}")]
async fn generic<T: KeyPart + Sync>(tx: &mut SqliteTransaction<'_>, id: &T, number: u64) -> sqlx::Result<u64> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(number)
}

#[idempotent(key = "{event.id}")]
pub async fn owned<T>(tx: &mut SqliteTransaction<'_>, event: Event<T>) -> sqlx::Result<T>
where
    T: KeyPart + Send + Sync + Clone,
{
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(event.id.clone())
}

/// Public, so that the source is a named type parameter.
#[idempotent(key = "{id}")]
pub async fn public(tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<u64> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(id)
}

/// Not `Sync`, and moved through the body's awaits.
#[idempotent(key = "{id}")]
async fn not_sync(tx: &mut SqliteTransaction<'_>, id: u64, cell: std::cell::Cell<u8>) -> sqlx::Result<u64> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    cell.set(1);
    Ok(id)
}

trait Ledger {
    fn grant<'a>(
        &self,
        tx: impl Into<Source<'a, Sqlite>> + Send,
        id: u64,
    ) -> impl Future<Output = sqlx::Result<Outcome<u64>>> + Send;
}

trait PlainLedger {
    #[allow(async_fn_in_trait)]
    async fn grant_plainly(&self, tx: impl Into<Source<'_, Sqlite>>, id: u64) -> sqlx::Result<Outcome<u64>>;
}

struct Books;

impl Books {
    #[idempotent(key = "{id}")]
    async fn grant_inherently(&self, tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<u64> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(id)
    }
}

impl Ledger for Books {
    async fn grant<'a>(&self, tx: impl Into<Source<'a, Sqlite>> + Send, id: u64) -> sqlx::Result<Outcome<u64>> {
        self.grant_inherently(tx, id).await
    }
}

impl PlainLedger for Books {
    #[idempotent(key = "{id}")]
    async fn grant_plainly(&self, tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<u64> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(id)
    }
}

/// A trait may also have a body of its own.
trait WithDefault: Sync {
    #[allow(async_fn_in_trait)]
    #[idempotent(key = "{id}")]
    async fn grant_by_default(&self, tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<u64> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(id)
    }
}

impl WithDefault for Books {}

#[derive(Debug)]
struct Wrapper<T>(T);

impl<T: KeyPart + Debug + Sync> Wrapper<T> {
    #[idempotent(key = "{self.0}")]
    async fn handle<U: Debug + Sync>(&self, tx: &mut SqliteTransaction<'_>, with: &U) -> sqlx::Result<String> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(format!("{self:?}{with:?}"))
    }
}

fn assert_send<T: Send>(value: T) -> T {
    value
}

async fn callers(pool: SqlitePool, store: ClaimStore<Sqlite>) -> sqlx::Result<()> {
    let from_pool = pool.clone();
    tokio::spawn(async move { generic(&from_pool, &1_u64, 1).await });
    let from_pool = pool.clone();
    tokio::spawn(async move { owned(&from_pool, Event { id: "a".to_owned() }).await });
    tokio::spawn(async move { public(&store, 1).await });
    let from_pool = pool.clone();
    tokio::spawn(async move {
        let mut tx = from_pool.begin().await?;
        public(&mut tx, 1).await?;
        not_sync(&mut *tx, 1, std::cell::Cell::new(1)).await?;
        tx.commit().await
    });
    let from_pool = pool.clone();
    tokio::spawn(async move {
        let mut connection: SqliteConnection = from_pool.acquire().await?.detach();
        public(&mut connection, 1).await?;
        connection.close().await
    });
    let books = Arc::new(Books);
    let from_pool = pool.clone();
    tokio::spawn({
        let books = Arc::clone(&books);
        async move { books.grant(&from_pool, 1).await }
    });
    let _ = assert_send(Wrapper(1_u8).handle(&pool, &2_u8));
    books.grant_plainly(&pool, 1).await?;
    books.grant_by_default(&pool, 1).await?;
    Ok(())
}

fn assert_database<DB: Database>() {}

fn main() {
    assert_database::<Sqlite>();
    let _ = callers;
}
