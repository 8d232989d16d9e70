//! The marked parameter is no transaction.

use idempotent_runtime::idempotent;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(#[tx] _tx: &mut String, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
