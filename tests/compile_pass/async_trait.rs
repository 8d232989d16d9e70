//! A trait that is made into an object with `#[async_trait]`: the handler stands outside the impl, which calls it.

#![deny(warnings)]

use async_trait::async_trait;
use idempotent_runtime::{Outcome, idempotent};
use sqlx::{SqlitePool, SqliteTransaction};

struct Event {
    id: u64,
}

#[async_trait]
trait Ledger: Send + Sync {
    async fn grant(&self, pool: &SqlitePool, event: &Event) -> sqlx::Result<Outcome<u64>>;
}

struct Books;

impl Books {
    #[idempotent(key = "{event.id}")]
    async fn grant_once(&self, tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<u64> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(event.id)
    }
}

#[async_trait]
impl Ledger for Books {
    async fn grant(&self, pool: &SqlitePool, event: &Event) -> sqlx::Result<Outcome<u64>> {
        self.grant_once(pool, event).await
    }
}

async fn caller(ledger: &dyn Ledger, pool: &SqlitePool) -> sqlx::Result<()> {
    ledger.grant(pool, &Event { id: 1 }).await?;
    Ok(())
}

fn main() {
    let _ = caller;
    let _: &dyn Ledger = &Books;
}
