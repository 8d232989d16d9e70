//! Whatever a source can be made from, and error types that handlers return.

#![deny(warnings)]

use idempotent_runtime::{ClaimStore, Error, Outcome, idempotent};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Sqlite, SqliteTransaction};

#[idempotent(key = "{id}")]
async fn handler(tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<u8> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(id)
}

/// A handler that hands its transaction on, twice.
#[idempotent(key = "{id}")]
async fn outer(tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<u8> {
    handler(&mut *tx, id).await?;
    handler(tx, id + 1).await?;
    Ok(id)
}

#[derive(Debug)]
enum OwnError {
    Idempotent(Error),
    Refused,
}

impl From<Error> for OwnError {
    fn from(error: Error) -> Self {
        Self::Idempotent(error)
    }
}

impl From<sqlx::Error> for OwnError {
    fn from(error: sqlx::Error) -> Self {
        Self::Idempotent(error.into())
    }
}

#[idempotent(key = "{id}")]
async fn own_error(tx: &mut SqliteTransaction<'_>, id: u8) -> Result<(), OwnError> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Err(OwnError::Refused)
}

#[idempotent(key = "{id}")]
async fn boxed_error(tx: &mut SqliteTransaction<'_>, id: u8) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Err("refused")?
}

#[idempotent(key = "{id}")]
async fn library_error(tx: &mut SqliteTransaction<'_>, id: u8) -> Result<Vec<u8>, Error> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(vec![id])
}

mod nested {
    pub(super) async fn local_handler(pool: &sqlx::SqlitePool) -> sqlx::Result<bool> {
        #[super::idempotent(key = "{id}")]
        async fn local(_tx: &mut sqlx::SqliteTransaction<'_>, id: u8) -> sqlx::Result<u8> {
            Ok(id)
        }
        Ok(local(pool, 1).await?.is_processed())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), OwnError> {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    idempotent_runtime::migrate(&pool).await?;
    let store: ClaimStore<Sqlite> = ClaimStore::new(pool.clone());

    let outcome: Outcome<u8> = handler(&pool, 1).await?;
    assert!(outcome.is_processed());
    assert!(handler(&store, 1).await?.is_duplicate());

    let mut tx = pool.begin().await?;
    assert!(handler(&mut tx, 2).await?.is_processed());
    assert!(handler(&mut *tx, 2).await?.is_duplicate());
    assert!(outer(&mut tx, 10).await?.is_processed());
    idempotent_runtime::commit(tx).await?;

    let mut connection = pool.acquire().await?;
    assert!(handler(&mut *connection, 3).await?.is_processed());
    assert!(handler(&mut *connection, 3).await?.is_duplicate());
    drop(connection);

    assert!(matches!(own_error(&pool, 1).await, Err(OwnError::Refused)));
    assert!(boxed_error(&pool, 1).await.is_err());
    assert!(matches!(library_error(&pool, 1).await, Ok(Outcome::Processed(_))));
    assert!(nested::local_handler(&pool).await?);
    Ok(())
}
