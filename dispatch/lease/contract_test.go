package lease

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"LeaseParams":      reflect.TypeFor[LeaseParams](),
		"HeartbeatParams":  reflect.TypeFor[beatOneBody](),
		"Heartbeat":        reflect.TypeFor[beatOneAnswer](),
		"HeartbeatsParams": reflect.TypeFor[beatBody](),
		"HeartbeatResults": reflect.TypeFor[beatAnswer](),
		"CompleteParams":   reflect.TypeFor[completeBody](),
		"FailParams":       reflect.TypeFor[failBody](),
		"FinishParams":     reflect.TypeFor[finishBody](),
		"FinishResults":    reflect.TypeFor[finishAnswer](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
