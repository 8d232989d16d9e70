//! The attribute stands on a method that a trait only declares.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

trait Handler {
    #[idempotent(key = "{event.id}")]
    async fn handle(&self, tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()>;
}

fn main() {}
