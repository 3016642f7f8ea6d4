package push

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/internal/web"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"EndpointParams":  reflect.TypeFor[EndpointParams](),
		"Endpoint":        reflect.TypeFor[Endpoint](),
		"Sample":          reflect.TypeFor[Sample](),
		"EndpointHealth":  reflect.TypeFor[Health](),
		"HealthMinute":    reflect.TypeFor[HealthMinute](),
		"AnsweredRequest": reflect.TypeFor[Answered](),
		"EndpointTrial":   reflect.TypeFor[Trial](),
		"EndpointPage":    reflect.TypeFor[web.ListAnswer[Endpoint]](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
