//go:build !unix

package oplog

import "os"

// lock does nothing here: let only one process use a state file.
func lock(*os.File) error { return nil }
