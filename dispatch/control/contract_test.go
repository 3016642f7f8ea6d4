package control

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"BackfillParams":    reflect.TypeFor[BackfillParams](),
		"BackfillPlan":      reflect.TypeFor[BackfillPlan](),
		"DeadReplayParams":  reflect.TypeFor[DeadReplayParams](),
		"DeadReplayPreview": reflect.TypeFor[DeadReplayPreview](),
		"TriggerParams":     reflect.TypeFor[TriggerParams](),
		"HaltParams":        reflect.TypeFor[HaltParams](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
