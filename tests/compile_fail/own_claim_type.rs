//! A part of the message has a type that is called `Claim` too.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

mod insurance {
    pub struct Claim {
        pub id: String,
    }
}

struct Letter {
    id: String,
}

#[idempotent(key = "{letter.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, letter: &Letter, claim: &insurance::Claim) -> sqlx::Result<String> {
    Ok(claim.id.clone())
}

fn main() {}
