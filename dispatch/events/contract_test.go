package events_test

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/dispatch/events"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"Event": reflect.TypeFor[events.Event](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
