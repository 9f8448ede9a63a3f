//! The form of the resource's schema. kube's `StructuralSchemaRewriter` and its companions merge the branches
//! of enums; this module removes what they leave: `null`, unsigned formats, repeated defaults and foreign
//! descriptions.

use schemars::{Schema, transform::transform_subschemas};
use serde_json::{Map, Value};

/// Brings a schema into the form that Kubernetes documents use.
///
/// - A field that is not set is omitted. `null` has the same meaning, so nothing is nullable.
/// - Integers are signed, without the lower bound of zero. Each integer of the spec has a rule with both
///   bounds and a message, and one mistake should not be reported twice.
/// - The default of an object omits what the defaults of its fields already set.
pub(crate) fn structural(schema: &mut Schema) {
    transform_subschemas(&mut structural, schema);
    if let Some(node) = schema.as_object_mut() {
        not_nullable(node);
        signed(node);
        sparse_default(node);
    }
}

/// Whether a field has its default. A field of an entry of a list is not written then, so that schemars gives
/// its schema no default. The API server would write the default into the list. Tools that apply documents
/// compare and own a list as a whole, and would find another one than the document has.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Removes the descriptions inside a type that Kubernetes documents: they would be nine tenths of the
/// resource.
pub(crate) fn terse(schema: &mut Schema) {
    transform_subschemas(
        &mut |inner: &mut Schema| {
            inner.remove("description");
            terse(inner);
        },
        schema,
    );
}

fn not_nullable(node: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = node.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [kind] = types.as_slice() {
            let kind = kind.clone();
            node.insert("type".into(), kind);
        }
    }
    if let Some(Value::Array(values)) = node.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(choices)) = node.get("anyOf") else {
        return;
    };
    let some: Vec<Value> = choices
        .iter()
        .filter(|choice| choice["type"] != "null")
        .cloned()
        .collect();
    if let ([Value::Object(only)], true) = (some.as_slice(), some.len() < choices.len()) {
        node.remove("anyOf");
        for (keyword, value) in only {
            node.entry(keyword).or_insert_with(|| value.clone());
        }
    }
}

fn signed(node: &mut Map<String, Value>) {
    let format = match node.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "uint32") => "int32",
        Some("uint" | "uint64") => "int64",
        _ => return,
    };
    node.insert("format".into(), format.into());
    if node.get("minimum").and_then(Value::as_f64) == Some(0.0) {
        node.remove("minimum");
    }
}

fn sparse_default(node: &mut Map<String, Value>) {
    let Some(default) = node.get("default").filter(|default| default.is_object()) else {
        return;
    };
    let sparse = beyond_properties(default, node.get("properties"));
    node.insert("default".into(), sparse);
}

/// The part of a default that the defaults of the properties do not set.
fn beyond_properties(default: &Value, properties: Option<&Value>) -> Value {
    let (Value::Object(default), Some(properties)) = (default, properties) else {
        return default.clone();
    };
    let set = |(name, value): (&String, &Value)| {
        let property = &properties[name];
        let value = beyond_properties(value, property.get("properties"));
        (property.get("default") != Some(&value)).then(|| (name.clone(), value))
    };
    Value::Object(default.iter().filter_map(set).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn transformed(schema: Value) -> Value {
        let mut schema = Schema::try_from(schema).unwrap();
        structural(&mut schema);
        schema.to_value()
    }

    #[test]
    fn optional_fields_are_left_out_rather_than_null() {
        assert_eq!(
            transformed(json!({"type": ["string", "null"], "enum": ["a", null]})),
            json!({"type": "string", "enum": ["a"]})
        );
        assert_eq!(
            transformed(json!({
                "description": "The field.",
                "anyOf": [{"type": "string", "description": "The type."}, {"type": "null"}],
            })),
            json!({"description": "The field.", "type": "string"})
        );
    }

    #[test]
    fn real_choices_stay() {
        let choice = json!({"anyOf": [{"type": "integer"}, {"type": "string"}]});
        assert_eq!(transformed(choice.clone()), choice);
    }

    #[test]
    fn integers_have_formats_that_kubernetes_knows() {
        for (of_rust, of_kubernetes) in [("uint32", "int32"), ("uint64", "int64"), ("int32", "int32")] {
            assert_eq!(
                transformed(json!({"type": "integer", "format": of_rust})),
                json!({"type": "integer", "format": of_kubernetes})
            );
        }
        assert_eq!(
            transformed(json!({"type": "integer", "format": "uint32", "minimum": 0})),
            json!({"type": "integer", "format": "int32"})
        );
        assert_eq!(
            transformed(json!({"type": "integer", "format": "uint32", "minimum": 3})),
            json!({"type": "integer", "format": "int32", "minimum": 3})
        );
    }

    #[test]
    fn a_default_repeats_nothing() {
        let inner = json!({"type": "object", "default": {"a": 1}, "properties": {"a": {"default": 1}}});
        let outer = json!({
            "type": "object",
            "default": {"inner": {"a": 1}, "own": 2},
            "properties": {"inner": inner, "own": {"default": 3}},
        });
        let sparse = transformed(outer);
        assert_eq!(sparse["default"], json!({"own": 2}));
        assert_eq!(sparse["properties"]["inner"]["default"], json!({}));
    }

    #[test]
    fn a_terse_schema_keeps_its_own_description_and_its_structure() {
        let mut schema = Schema::try_from(json!({
            "description": "Ours.",
            "type": "object",
            "properties": {"a": {"description": "Theirs.", "type": "array", "items": {"description": "Theirs."}}},
        }))
        .unwrap();
        terse(&mut schema);
        assert_eq!(
            schema.to_value(),
            json!({
                "description": "Ours.",
                "type": "object",
                "properties": {"a": {"type": "array", "items": {}}},
            })
        );
    }
}
