//! The form of the resource's schema. kube's `StructuralSchemaRewriter` and its companions merge the branches
//! of enums; this module removes what they leave: `null`, unsigned formats, repeated defaults and foreign
//! descriptions. It bounds what types of Kubernetes leave open.

use schemars::{Schema, transform::transform_subschemas};
use serde_json::{Map, Value};

/// Brings a schema into the form that Kubernetes documents use.
///
/// - A field that is not set is omitted. `null` has the same meaning, so nothing is nullable.
/// - Integers are signed, without the lower bound of zero. Each integer of the spec has a rule with both
///   bounds and a message, and one mistake should not be reported twice.
/// - The default of an object omits what the defaults of its fields already set.
pub(crate) fn make_structural(schema: &mut Schema) {
    transform_subschemas(&mut make_structural, schema);
    if let Some(node) = schema.as_object_mut() {
        remove_nullable(node);
        use_signed_formats(node);
        trim_default(node);
    }
}

/// Bounds each list, map and text of a spec without a bound of its own, such as those of Kubernetes' types.
/// The API server accepts documents of 1.5 MB. Their entries would occupy many times as much in the one
/// operator that all namespaces share.
pub(crate) fn add_bounds(schema: &mut Schema) {
    if let Some(node) = schema.as_object_mut() {
        bound(node, "");
    }
}

/// Bounds the schema of a field with this name, or of its entries.
fn bound(node: &mut Map<String, Value>, name: &str) {
    // Affinities list machines and namespaces. Annotations and environment variables may have JSON.
    let (entries, characters): (u64, u64) = match name {
        "values" | "namespaces" => (64, 253),
        "annotations" | "env" => (16, 4096),
        _ => (16, 253),
    };
    let limit = match node.get("type").and_then(Value::as_str) {
        Some("array") => Some(("maxItems", entries)),
        Some("object") if node.get("additionalProperties").is_some_and(Value::is_object) => {
            Some(("maxProperties", 64))
        }
        Some("string") if !node.contains_key("enum") => Some(("maxLength", characters)),
        None if node.contains_key("x-kubernetes-int-or-string") => Some(("maxLength", characters)),
        _ => None,
    };
    if let Some((keyword, most)) = limit {
        node.entry(keyword).or_insert(most.into());
    }
    if let Some(Value::Object(properties)) = node.get_mut("properties") {
        for (name, property) in properties {
            if let Value::Object(property) = property {
                bound(property, name);
            }
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = node.get_mut(keyword) {
            bound(inner, name);
        }
    }
}

/// The default of a field that is `true` unless a document says otherwise: serde takes the name of a
/// function.
pub(crate) fn default_true() -> bool {
    true
}

/// Whether a field has its default. A field of an entry of a list is not written then, so that schemars gives
/// its schema no default. The API server would write the default into the list. Tools that apply documents
/// compare and own a list as a whole, and would find another one than the document has.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Removes the descriptions inside a type that Kubernetes documents: they would be nine tenths of the
/// resource.
pub(crate) fn strip_descriptions(schema: &mut Schema) {
    transform_subschemas(
        &mut |inner: &mut Schema| {
            inner.remove("description");
            strip_descriptions(inner);
        },
        schema,
    );
}

fn remove_nullable(node: &mut Map<String, Value>) {
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

fn use_signed_formats(node: &mut Map<String, Value>) {
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

fn trim_default(node: &mut Map<String, Value>) {
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
        make_structural(&mut schema);
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
    fn a_choice_between_types_stays() {
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
    fn lists_maps_and_texts_without_a_bound_get_one() {
        let text = |most: u64| json!({"type": "string", "maxLength": most});
        let with = |values: Value, words: Value, annotations: Value, limits: Value| {
            json!({"type": "object", "properties": {
                "values": values, "words": words, "annotations": annotations, "limits": limits,
                "one": {"type": "string", "enum": ["a", "b"]},
            }})
        };
        let mut schema = Schema::try_from(with(
            json!({"type": "array", "items": {"type": "string"}}),
            json!({"type": "array", "maxItems": 2, "items": text(3)}),
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}}),
        ))
        .unwrap();
        add_bounds(&mut schema);
        let quantity = json!({"x-kubernetes-int-or-string": true, "maxLength": 253});
        let expected = with(
            json!({"type": "array", "maxItems": 64, "items": text(253)}),
            json!({"type": "array", "maxItems": 2, "items": text(3)}),
            json!({"type": "object", "maxProperties": 64, "additionalProperties": text(4096)}),
            json!({"type": "object", "maxProperties": 64, "additionalProperties": quantity}),
        );
        assert_eq!(schema.to_value(), expected);
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
    fn only_descriptions_of_fields_are_stripped() {
        let mut schema = Schema::try_from(json!({
            "description": "Ours.",
            "type": "object",
            "properties": {"a": {"description": "Theirs.", "type": "array", "items": {"description": "Theirs."}}},
        }))
        .unwrap();
        strip_descriptions(&mut schema);
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
