//! `cofferdam schema`: the JSON Schemas of requests and results.

use serde_json::Value;

use crate::support::cofferdam;

#[test]
fn both_schemas_are_printed_indented_with_their_ids() {
    for (what, title) in [("request", "RunJobRequest"), ("result", "RunJobResult")] {
        let done = cofferdam("schema").arg(what).run().exits(0).quietly();
        let schema: Value = serde_json::from_str(&done.stdout()).unwrap();
        assert_eq!(schema["title"], title);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["$id"], format!("urn:cofferdam:schema:run-job-{what}:1"));
        done.holds(done.stdout().starts_with("{\n  "), "an indented schema");
    }
    cofferdam("schema").run().exits(2).prints("").complains("<WHAT>");
    cofferdam("schema answer").run().exits(2).prints("").complains("answer");
}
