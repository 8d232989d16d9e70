//! An `Option` needs `missing`.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: Option<String>,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
