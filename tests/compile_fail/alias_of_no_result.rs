//! The handler returns an alias of something else than a `Result`.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

type Answer = (i64, i64);

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> Answer {
    (1, 2)
}

fn main() {}
