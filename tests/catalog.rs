//! The catalogue of a program is committed and compared, so that no identity changes unseen (C13).

use std::fs;
use std::path::Path;

use idempotent_runtime::catalog;
use sqlx::SqlitePool;

mod orders {
    use idempotent_runtime::idempotent;
    use sqlx::SqliteTransaction;

    pub(super) struct Shipped {
        pub(super) order: u64,
        pub(super) parcel: u32,
    }

    #[idempotent(key = "{shipped.order}|{shipped.parcel}", sender = "carrier", retention = "30d", horizon = "14d")]
    pub(super) async fn note(_tx: &mut SqliteTransaction<'_>, shipped: &Shipped) -> sqlx::Result<()> {
        Ok(())
    }
}

mod payments {
    use idempotent_runtime::idempotent;
    use sqlx::SqliteTransaction;

    #[idempotent(key = "{id}", consumer = "payments.settle", sender = "{provider}", missing = "process")]
    pub(super) async fn settle(_tx: &mut SqliteTransaction<'_>, provider: &str, id: Option<&str>) -> sqlx::Result<()> {
        Ok(())
    }
}

/// As the documentation tells applications to do. To accept a change: `CATALOG=overwrite`.
#[test]
fn the_catalogue_is_the_committed_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalog.md");
    let table = catalog().to_markdown();
    if std::env::var_os("CATALOG").is_some() {
        fs::write(&path, &table).expect("the catalogue");
    }
    assert_eq!(table, fs::read_to_string(path).expect("the catalogue"), "an identity has changed");
}

/// What the comparison sees of a renamed handler, and that one with a name of its own keeps it.
#[test]
fn a_derived_consumer_follows_its_function_and_a_chosen_one_does_not() {
    let consumers: Vec<_> =
        catalog().handlers().iter().map(|handler| (handler.consumer(), handler.is_consumer_chosen())).collect();
    assert_eq!(consumers, [("payments.settle", true), ("tests.note", false)]);
    // Called or not, they are there.
    let _ = |pool: &SqlitePool, shipped: &orders::Shipped| {
        drop((orders::note(pool, shipped), payments::settle(pool, "stripe", None)));
    };
}
