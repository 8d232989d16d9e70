//! The attribute stands on a whole impl.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

struct Handler;

#[idempotent(key = "{event.id}")]
impl Handler {
    async fn handle(&self, _tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
        Ok(())
    }
}

fn main() {}
