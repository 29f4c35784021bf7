package plan

// jsonTypes is a set of JSON types; 0 is the set of which nothing is known.
type jsonTypes uint8

const (
	typeNull jsonTypes = 1 << iota
	typeBoolean
	typeNumber
	typeString
	typeArray
	typeObject
)

var typeNames = []string{"null", "boolean", "number", "string", "array", "object"}

func (t jsonTypes) names() []string {
	var names []string
	for i, name := range typeNames {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String writes the types for messages: "a string or null".
func (t jsonTypes) String() string { return articles(t.names()) }

// schemaTypes reads the value of "type". An integer is a number here: a value that is a number may well be whole.
func schemaTypes(t Value) jsonTypes {
	switch t.kind {
	case String:
		switch t.text {
		case "null":
			return typeNull
		case "boolean":
			return typeBoolean
		case "number", "integer":
			return typeNumber
		case "string":
			return typeString
		case "array":
			return typeArray
		case "object":
			return typeObject
		}
	case Array:
		var all jsonTypes
		for i := range t.items {
			one := schemaTypes(t.items[i])
			if one == 0 {
				return 0
			}
			all |= one
		}
		return all
	}
	return 0
}

// kindType is the type of a value.
func kindType(v Value) jsonTypes {
	switch v.kind {
	case Null:
		return typeNull
	case Bool:
		return typeBoolean
	case Number:
		return typeNumber
	case String:
		return typeString
	case Array:
		return typeArray
	case Object:
		return typeObject
	}
	return 0
}

// maxRefHops bounds a chain of references to references.
const maxRefHops = 16

// plainSchema follows references until a schema without one, nil where that leads nowhere.
func plainSchema(root, schema *Value) *Value {
	for range maxRefHops {
		ref, ok := schema.member("$ref")
		if !ok || ref.kind != String {
			return schema
		}
		if schema = localRef(root, ref.text); schema == nil {
			return nil
		}
	}
	return nil
}

// allowedTypes is what a schema says of a value's type, 0 where it does not say.
func allowedTypes(root, schema *Value) jsonTypes {
	if schema = plainSchema(root, schema); schema == nil || schema.kind != Object {
		return 0
	}
	if t, ok := schema.member("type"); ok {
		return schemaTypes(*t)
	}
	if c, ok := schema.member("const"); ok {
		return kindType(*c)
	}
	if e, ok := schema.member("enum"); ok && e.kind == Array {
		var all jsonTypes
		for i := range e.items {
			all |= kindType(e.items[i])
		}
		return all
	}
	return 0
}

// schemaAt goes down a schema along a path of a value. It returns nil where the schema does not say what is there;
// and for a property that cannot be there, its name and those that can.
func schemaAt(root *Value, path []string) (at *Value, wrong string, known []string) {
	at = root
	for _, part := range path {
		if at = plainSchema(root, at); at == nil || at.kind != Object {
			return nil, "", nil
		}
		next := propertySchema(at, part)
		if next == nil {
			next = itemSchema(at, part)
		}
		if next == nil {
			if names := closedNames(at); names != nil {
				return nil, part, names
			}
			return nil, "", nil
		}
		at = next
	}
	return at, "", nil
}

func propertySchema(schema *Value, name string) *Value {
	if properties, ok := schema.member("properties"); ok {
		if p, ok := properties.member(name); ok {
			return p
		}
	}
	return nil
}

func itemSchema(schema *Value, part string) *Value {
	i, ok := arrayIndex(part)
	if !ok {
		return nil
	}
	if prefix, ok := schema.member("prefixItems"); ok {
		if i < len(prefix.items) {
			return &prefix.items[i]
		}
	}
	if items, ok := schema.member("items"); ok && items.kind == Object {
		return items
	}
	return nil
}

// closedNames are the properties of an object that can have no others, nil where it can or where it may be no object.
func closedNames(schema *Value) []string {
	t, ok := schema.member("type")
	if !ok || schemaTypes(*t)&^typeNull != typeObject {
		return nil
	}
	more, ok := schema.member("additionalProperties")
	if !ok || more.kind != Bool || more.text != "false" {
		return nil
	}
	if _, ok := schema.member("patternProperties"); ok {
		return nil
	}
	names := []string{}
	if properties, ok := schema.member("properties"); ok {
		for i := range properties.members {
			names = append(names, properties.members[i].Name)
		}
	}
	return names
}
