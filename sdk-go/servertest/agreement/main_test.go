package agreement

import (
	"testing"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }
