package dispatchtest

import (
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/subjects"
)

func (h *Carillon) PutSubject(key string, p subjects.SubjectParams) {
	h.T.Helper()
	if _, _, _, err := h.Subjects.PutSubject(h.T.Context(), h.Tenant, key, p, "tester", version.Precondition{}); err != nil {
		h.T.Fatal(err)
	}
}
