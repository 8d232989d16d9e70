//! No parameter is a transaction.

use idempotent_runtime::idempotent;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
