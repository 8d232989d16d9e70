//! The handler returns no `Result`.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> i64 {
    1
}

fn main() {}
