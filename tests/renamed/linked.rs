//! The library's handlers are in the catalogue of a test that names the library (C13).

use tests_renamed as _;

#[test]
fn a_library_that_is_named_is_linked_with_its_handlers() {
    let catalog = deliveries::catalog();
    assert_eq!(catalog.handlers().iter().map(|handler| handler.consumer()).collect::<Vec<_>>(), ["tests-renamed.ship"]);
    catalog.compare(&catalog.to_markdown()).unwrap();
}
