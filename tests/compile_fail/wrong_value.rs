//! The body returns another type than the signature says.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<i64> {
    let name: sqlx::Result<String> = Ok(event.id.clone());
    name
}

fn main() {}
