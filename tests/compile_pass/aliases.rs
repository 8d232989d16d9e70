//! Aliases of the transaction, of the result and of both, and every transaction that is known by name.

#![deny(warnings)]

use idempotent_runtime::{Error, Outcome, idempotent};
use sqlx::{
    MySqlConnection, MySqlTransaction, PgConnection, PgTransaction, Postgres, Sqlite, SqliteConnection, SqlitePool,
    SqliteTransaction,
};

type Tx<'a> = SqliteTransaction<'a>;
type Connection = SqliteConnection;
type Generic<'a, DB = Sqlite> = sqlx::Transaction<'a, DB>;
type Done = sqlx::Result<()>;
type Answer<T, E = sqlx::Error> = Result<T, E>;

mod result {
    pub type Result<T> = std::result::Result<T, idempotent_runtime::Error>;
}

/// An alias that is called like sqlx's type.
mod own {
    pub type Transaction<'a> = sqlx::Transaction<'a, sqlx::Sqlite>;
}

#[idempotent(key = "{id}")]
async fn transaction(#[tx] tx: &mut Tx<'_>, id: u8) -> result::Result<u8> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(id)
}

#[idempotent(key = "{id}")]
async fn connection(#[tx] tx: &mut Connection, id: u8) -> Done {
    sqlx::query("SELECT 1").execute(tx).await?;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn with_lifetimes<'t>(#[tx] tx: &'t mut Tx<'t>, id: u8) -> Answer<u8> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(id)
}

#[idempotent(key = "{id}")]
async fn generic_alias(#[tx] _tx: &mut Generic<'_>, id: u8) -> Answer<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}")]
async fn generic_alias_with_argument(#[tx] _tx: &mut Generic<'_, Postgres>, id: u8) -> Answer<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}")]
async fn alias_of_the_same_name(tx: &mut own::Transaction<'_>, id: u8) -> Done {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(())
}

/// The attribute may stand on a type that is known anyway.
#[idempotent(key = "{id}")]
async fn marked(#[tx] connection: &mut sqlx::SqliteTransaction<'_>, id: u8) -> Done {
    sqlx::query("SELECT 1").execute(&mut **connection).await?;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn sqlite(tx: &mut sqlx::Transaction<'_, Sqlite>, id: u8) -> Done {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn sqlite_connection(tx: &mut SqliteConnection, id: u8) -> Done {
    sqlx::query("SELECT 1").execute(&mut *tx).await?;
    sqlx::query("SELECT 1").execute(tx).await?;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn pg(tx: &mut PgTransaction<'_>, id: u8) -> Done {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn pg_connection(tx: &mut PgConnection, id: u8) -> Done {
    sqlx::query("SELECT 1").execute(tx).await?;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn mysql(tx: &mut MySqlTransaction<'_>, id: u8) -> Done {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn mysql_connection(tx: &mut MySqlConnection, id: u8) -> Done {
    sqlx::query("SELECT 1").execute(tx).await?;
    Ok(())
}

async fn callers(pool: &SqlitePool, pg_pool: &sqlx::PgPool, mysql_pool: &sqlx::MySqlPool) -> Result<(), Error> {
    let outcome: Outcome<u8> = transaction(pool, 1).await?;
    let _ = outcome.value();
    connection(pool, 1).await?;
    with_lifetimes(pool, 1).await?;
    generic_alias(pool, 1).await?;
    generic_alias_with_argument(pg_pool, 1).await?;
    alias_of_the_same_name(pool, 1).await?;
    marked(pool, 1).await?;
    sqlite(pool, 1).await?;
    sqlite_connection(pool, 1).await?;
    pg(pg_pool, 1).await?;
    pg_connection(pg_pool, 1).await?;
    mysql(mysql_pool, 1).await?;
    mysql_connection(mysql_pool, 1).await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
