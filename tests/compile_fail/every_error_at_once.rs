//! All independent errors are shown at once.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{message.id}:{event.id:?}", retension = "30d", horizon = "nine days", consumer = "")]
fn handler(tx: SqliteTransaction<'_>, event: &Event) -> i64 {
    event.nothing
}

fn main() {}
