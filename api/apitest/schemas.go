package apitest

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas are the document's, each compiled once: kin-openapi compiles one anew for every value, which takes as long as
// all the rest of a test.
type schemas struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

const documentURL = "openapi.json"

func compileSchemas(doc *openapi3.T) (*schemas, error) {
	b, err := doc.MarshalJSON()
	if err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	closeObjects(value)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	return &schemas{compiler: c}, c.AddResource(documentURL, value)
}

// closeObjects has each object schema below a value allow no further members. The document leaves answers open, so that later versions
// may add members. A test notices any member that the document does not have today.
func closeObjects(value any) {
	switch v := value.(type) {
	case map[string]any:
		_, isMap := v["additionalProperties"]
		if _, isObject := v["properties"].(map[string]any); isObject && !isMap {
			v["unevaluatedProperties"] = false
		}
		for name, inner := range v {
			if name != "example" && name != "examples" {
				closeObjects(inner)
			}
		}
	case []any:
		for _, inner := range v {
			closeObjects(inner)
		}
	}
}

// check holds a JSON text to the schema that ref, such as #/components/schemas/Tick, names.
func (s *schemas) check(ref string, text []byte) error {
	s.mu.Lock()
	schema, err := s.compiler.Compile(documentURL + ref)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	return schema.Validate(value)
}

// checkBody holds a body to the schema that ref names; of NDJSON, each line.
func (s *schemas) checkBody(ref string, h http.Header, text []byte) error {
	if media, _, _ := mime.ParseMediaType(h.Get("Content-Type")); media != ndjson {
		return s.check(ref, text)
	}
	if len(text) == 0 { // no lines
		return nil
	}
	for i, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		if err := s.check(ref, line); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}

const ndjson = "application/x-ndjson"

// named is the name of the schema of a body with these headers, where it has one and can be read here.
func named(content openapi3.Content, h http.Header) (ref string, ok bool) {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || h.Get("Content-Encoding") != "" || !strings.HasSuffix(media, "json") {
		return "", false
	}
	documented := content.Get(media)
	if documented == nil || documented.Schema == nil || documented.Schema.Ref == "" {
		return "", false
	}
	return documented.Schema.Ref, true
}

// Fits reports a JSON text that the document's schema of that name does not allow.
func Fits(t testing.TB, schemaName string, text []byte) {
	t.Helper()
	if err := New(t).schemas.check("#/components/schemas/"+schemaName, text); err != nil {
		t.Errorf("it is no %s: %v\n%s", schemaName, err, text)
	}
}
