package oplog

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

const maxShards = 256

var shardText = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})/[1-9][0-9]{0,2}$`)

// isShard reports whether the text is a shard such as 3/8.
func isShard(given string) bool {
	if !shardText.MatchString(given) {
		return false
	}
	shard, count, _ := strings.Cut(given, "/")
	index, _ := strconv.Atoi(shard)
	shards, _ := strconv.Atoi(count)
	return index < shards && shards <= maxShards
}

// checkShard returns an error if an answer does not confirm the shard of its request. An older agent ignores the parameter.
func checkShard(response *http.Response, shard string) error {
	switch confirmed := strings.Join(response.Header.Values("Oplog-Shard"), ", "); {
	case shard == "", confirmed == shard:
		return nil
	case confirmed == "":
		return &PermanentError{response.StatusCode, errors.New(
			"the agent does not know shards: it is older than this client and sent everything. Upgrade the agent")}
	default:
		return &PermanentError{response.StatusCode, fmt.Errorf("the agent sent the shard %.40q instead of %s", confirmed, shard)}
	}
}
