//! A batch is named like in a loop.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{order.id}", each = "order of orders")]
async fn handler(_tx: &mut SqliteTransaction<'_>, orders: Vec<Event>) -> sqlx::Result<()> {
    drop(orders);
    Ok(())
}

fn main() {}
