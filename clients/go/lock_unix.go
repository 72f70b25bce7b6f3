//go:build unix

package oplog

import (
	"os"
	"syscall"
)

// lock fails at once if another process holds the lock. The system releases it when the file is closed.
func lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
