//! Traits that declare the rewritten signature in either form, with handlers and with methods written by hand, and
//! callers that are generic over the source.

#![deny(warnings)]
#![allow(async_fn_in_trait)]

use idempotent_runtime::{Database, IntoSource, Outcome, Source, idempotent};
use sqlx::{Sqlite, SqlitePool, SqliteTransaction};

type Tx<'a> = SqliteTransaction<'a>;
type Generic<'a, DB> = sqlx::Transaction<'a, DB>;

trait Declared {
    async fn by_conversion(&self, tx: impl Into<Source<'_, Sqlite>>, id: u64) -> sqlx::Result<Outcome<u64>>;
    async fn by_alias(&self, tx: impl Into<Source<'_, Sqlite>>, id: u64) -> sqlx::Result<Outcome<u64>>;
    async fn by_source(&self, tx: impl IntoSource<'_, Sqlite>, id: u64) -> sqlx::Result<Outcome<u64>>;
}

struct Books;

impl Declared for Books {
    #[idempotent(key = "{id}")]
    async fn by_conversion(&self, tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<u64> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(id)
    }

    #[idempotent(key = "{id}")]
    async fn by_alias(&self, #[tx] tx: &mut Tx<'_>, id: u64) -> sqlx::Result<u64> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(id)
    }

    #[idempotent(key = "{id}")]
    async fn by_source(&self, tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<u64> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(id)
    }
}

trait WithoutSelf {
    async fn handle<'c>(tx: impl Into<Source<'c, Sqlite>>, id: u64) -> sqlx::Result<Outcome<u64>>;
}

impl WithoutSelf for Books {
    #[idempotent(key = "{id}")]
    async fn handle(_tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<u64> {
        Ok(id)
    }
}

impl Books {
    #[idempotent(key = "{id}")]
    pub async fn public(&self, _tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<u64> {
        Ok(id)
    }

    #[idempotent(key = "{id}")]
    pub(crate) async fn public_on_an_alias(#[tx] _tx: &mut Tx<'_>, id: u64) -> sqlx::Result<u64> {
        Ok(id)
    }
}

/// Its handler may be replaced by a method that is none.
trait WithDefault {
    #[idempotent(key = "{id}")]
    async fn replaced(&self, _tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<u64> {
        Ok(id)
    }
}

impl WithDefault for Books {
    async fn replaced(&self, tx: impl Into<Source<'_, Sqlite>>, id: u64) -> sqlx::Result<Outcome<u64>> {
        self.by_conversion(tx, id).await
    }
}

#[idempotent(key = "{id}")]
async fn over_any_database<DB: Database>(#[tx] _tx: &mut Generic<'_, DB>, id: u64) -> sqlx::Result<u64> {
    Ok(id)
}

async fn generic_caller<'c>(source: impl Into<Source<'c, Sqlite>>) -> sqlx::Result<()> {
    Books.by_conversion(source, 1).await?;
    Ok(())
}

async fn generic_caller_of_a_public_one<'c>(source: impl Into<Source<'c, Sqlite>>) -> sqlx::Result<()> {
    Books.public(source, 1).await?;
    Ok(())
}

async fn generic_caller_of_a_public_one_on_an_alias<'c>(source: impl IntoSource<'c, Sqlite>) -> sqlx::Result<()> {
    Books::public_on_an_alias(source, 1).await?;
    Ok(())
}

/// What lends a pool is passed like one.
struct App(SqlitePool);

impl<'c> From<&'c App> for Source<'c, Sqlite> {
    fn from(app: &'c App) -> Self {
        Self::from(&app.0)
    }
}

async fn generic_caller_of_an_alias<'c>(source: impl IntoSource<'c, Sqlite>) -> sqlx::Result<()> {
    Books.by_alias(source, 1).await?;
    Ok(())
}

async fn callers(pool: &SqlitePool) -> sqlx::Result<()> {
    generic_caller(pool).await?;
    generic_caller_of_an_alias(pool).await?;
    generic_caller_of_a_public_one(pool).await?;
    generic_caller_of_a_public_one_on_an_alias(pool).await?;
    let app = App(pool.clone());
    Books.public(&app, 1).await?;
    Books::handle(&app, 1).await?;
    over_any_database(pool, 1).await?;
    Books.by_source(pool, 1).await?;
    Books.replaced(pool, 1).await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
