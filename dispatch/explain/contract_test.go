package explain

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"Explanation":     reflect.TypeFor[Explanation](),
		"ExplanationStep": reflect.TypeFor[Step](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
