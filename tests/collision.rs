//! Two handlers of one program with one consumer name never share claims: neither runs (G7).

use idempotent_runtime::{Disposition, Error, catalog, migrate};
use sqlx::SqlitePool;

mod billing {
    use idempotent_runtime::{Error, idempotent};
    use sqlx::SqliteTransaction;

    #[idempotent(key = "{id}")]
    pub(super) async fn handle(_tx: &mut SqliteTransaction<'_>, id: &str) -> Result<&'static str, Error> {
        Ok("billing")
    }
}

mod shipping {
    use idempotent_runtime::{Error, idempotent};
    use sqlx::SqliteTransaction;

    #[idempotent(key = "{id}")]
    pub(super) async fn handle(_tx: &mut SqliteTransaction<'_>, id: &str) -> Result<&'static str, Error> {
        Ok("shipping")
    }

    #[idempotent(key = "{id}")]
    pub(super) async fn another(_tx: &mut SqliteTransaction<'_>, id: &str) -> Result<&'static str, Error> {
        Ok("another")
    }
}

#[path = "collision/twice.rs"]
mod in_the_library;
#[path = "collision/twice.rs"]
#[allow(clippy::duplicate_mod, reason = "the mistake that is tested")]
mod in_the_program;

#[tokio::test]
async fn a_module_that_is_compiled_twice_is_told_from_two_handlers() {
    let pool = SqlitePool::connect("sqlite::memory:").await.expect("SQLite");
    for outcome in [in_the_library::settle(&pool, "1").await, in_the_program::settle(&pool, "1").await] {
        let text = outcome.expect_err("its claims would be shared").to_string();
        for part in ["one handler that is compiled into the program twice", "twice.rs:6", "use it from the library"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}

#[tokio::test]
async fn the_first_use_of_either_names_both_places() {
    let pool = SqlitePool::connect("sqlite::memory:").await.expect("SQLite");
    migrate(&pool).await.expect("the claim table");
    for outcome in [billing::handle(&pool, "1").await, shipping::handle(&pool, "1").await] {
        let error = outcome.expect_err("its claims would be shared");
        assert!(matches!(error, Error::ConsumerCollision { consumer: "tests.handle", .. }), "{error:?}");
        assert_eq!(error.disposition(), Disposition::Retry, "a deployment repairs it");
        let text = error.to_string();
        for part in ["collision::billing::handle", "collision::shipping::handle", "collision.rs:", "consumer = \"…\""]
        {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
    assert_eq!(shipping::another(&pool, "1").await.expect("its name is its own").value(), Some("another"));
    assert!(matches!(catalog().check(), Err(Error::ConsumerCollision { .. })));
}

/// A table with two lines of one consumer says nothing about either, and overwriting it cures nothing.
#[test]
fn a_catalogue_with_a_collision_is_that_error_and_is_not_written() {
    let error = catalog().compare(&catalog().to_markdown()).expect_err("its claims would be shared");
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    assert!(matches!(source, Some(Error::ConsumerCollision { .. })), "{source:?}");
    let said = error.to_string();
    assert!(said.contains("belongs to") && said.contains("collision.rs:"), "{said}");
    assert!(error.changes().is_empty() && !said.contains("overwrite") && !said.contains("IDENTITIES"), "{said}");
}
