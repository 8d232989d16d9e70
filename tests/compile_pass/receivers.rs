//! M7: methods with any `self`.

#![deny(warnings)]

use std::pin::Pin;
use std::sync::Arc;

use idempotent_runtime::idempotent;
use sqlx::{SqlitePool, SqliteTransaction};

struct Ledger {
    id: String,
    runs: u32,
}

impl Ledger {
    #[idempotent(key = "{self.id}:{number}")]
    async fn by_reference(&self, tx: &mut SqliteTransaction<'_>, number: u32) -> sqlx::Result<String> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(format!("{} {number}", self.id))
    }

    #[idempotent(key = "{self.id}")]
    async fn by_mutable_reference(&mut self, tx: &mut SqliteTransaction<'_>) -> sqlx::Result<u32> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        self.runs += 1;
        Ok(self.runs)
    }

    #[idempotent(key = "{self.id}")]
    async fn by_value(self, _tx: &mut SqliteTransaction<'_>) -> sqlx::Result<String> {
        Ok(self.id)
    }

    #[idempotent(key = "{self.id}")]
    async fn by_mutable_value(mut self, _tx: &mut SqliteTransaction<'_>) -> sqlx::Result<String> {
        self.runs += 1;
        Ok(format!("{} {}", self.id, self.runs))
    }

    #[idempotent(key = "{self.id}")]
    async fn by_arc(self: Arc<Self>, tx: &mut SqliteTransaction<'_>) -> sqlx::Result<String> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(format!("{}", self.id))
    }

    #[idempotent(key = "{self.id}")]
    async fn by_box(mut self: Box<Self>, _tx: &mut SqliteTransaction<'_>) -> sqlx::Result<u32> {
        self.runs += 1;
        Ok(self.runs)
    }

    #[idempotent(key = "{self.id}")]
    async fn by_pin(self: Pin<&mut Self>, _tx: &mut SqliteTransaction<'_>) -> sqlx::Result<u32> {
        Ok(self.runs)
    }

    #[idempotent(key = "{self.id}")]
    async fn borrowing<'a>(&'a self, tx: &mut SqliteTransaction<'_>) -> sqlx::Result<&'a str> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(&self.id)
    }

    #[idempotent(key = "{number}")]
    async fn eliding(&self, _tx: &mut SqliteTransaction<'_>, number: u32) -> sqlx::Result<&str> {
        let _ = number;
        Ok(&self.id)
    }

    /// The transaction need not come first.
    #[idempotent(key = "{self.id}:{number}")]
    async fn transaction_last(&self, number: u32, tx: &mut SqliteTransaction<'_>) -> sqlx::Result<()> {
        let _ = number;
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(())
    }

    /// A message that is no method's receiver.
    #[idempotent(key = "{id}")]
    async fn no_receiver(_tx: &mut SqliteTransaction<'_>, id: u32) -> sqlx::Result<Self> {
        Ok(Self { id: id.to_string(), runs: 0 })
    }
}

fn ledger() -> Ledger {
    Ledger { id: "a".to_owned(), runs: 0 }
}

async fn callers(pool: &SqlitePool) -> sqlx::Result<()> {
    let mut a = ledger();
    a.by_reference(pool, 1).await?;
    a.by_mutable_reference(pool).await?;
    a.borrowing(pool).await?;
    a.eliding(pool, 1).await?;
    a.transaction_last(1, pool).await?;
    a.by_value(pool).await?;
    ledger().by_mutable_value(pool).await?;
    Arc::new(ledger()).by_arc(pool).await?;
    Box::new(ledger()).by_box(pool).await?;
    Pin::new(&mut ledger()).by_pin(pool).await?;
    Ledger::no_receiver(pool, 1).await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
