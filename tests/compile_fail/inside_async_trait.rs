//! `#[async_trait]` has rewritten the method before.

use async_trait::async_trait;
use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[async_trait]
trait Handler {
    async fn handle(&self, tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()>;
}

struct Own;

#[async_trait]
impl Handler for Own {
    #[idempotent(key = "{event.id}")]
    async fn handle(&self, _tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
        Ok(())
    }
}

fn main() {}
