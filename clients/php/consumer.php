<?php
// Follows an oplog agent and prints each event. Needs nothing but php-cli (8.1 or newer) and the files beside it.
//
//   php consumer.php --url=http://localhost:8042 --types=video,user --start=0 --state=consumer.state
//
// With --state it continues from the saved position. The position is saved after an event was handled, never before, so a crash
// repeats events and loses none. With --count=N it ends after N operations. OPLOG_PASSWORD holds the agent's password.
//
// Exit status: 0 after --count or a signal, with the position saved; 1 when the agent refuses for good, or the state file
// cannot be used; 2 for a mistake in the command line.
declare(strict_types=1);

require __DIR__ . '/address.php';
require __DIR__ . '/cli.php';
require __DIR__ . '/http.php';
require __DIR__ . '/wire.php';
require __DIR__ . '/sse.php';
require __DIR__ . '/state.php';

const MAX_ERROR_BYTES = 64 << 10;
const JSON_OUT = JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE;
const MAX_REDIRECTS = 20;
const LIVELY_SECONDS = 5.0; // a connection that lived so long ends a row of failures

final class Consumer
{
    private string $position; // the last id received
    private bool $told = false; // of an unknown event name

    /** @param callable(string $position, string $event, ?array $operation): bool $handle returns whether to go on */
    public function __construct(
        private Address $url,
        private string $start,
        private ?StateFile $state,
        private float $timeout, // seconds until the head of an answer, and the body of an error, have come
        private float $heartbeat, // longest silence of a stream in seconds
        private Backoff $backoff,
        private $handle,
    ) {
        $this->position = $state?->position ?: $start;
    }

    /** Runs until the handler has enough or a signal comes. Throws Refused when trying again is no use. */
    public function run(): void
    {
        try {
            while (true) {
                try {
                    $answer = $this->open();
                    try {
                        if (!$this->follow($answer)) {
                            return;
                        }
                    } finally {
                        $answer->close();
                    }
                } catch (Later $reason) {
                    $this->state?->saveSometimes($this->position);
                    $this->backoff->pause($reason, 0);
                }
            }
        } catch (Stopped) {
            return;
        } finally {
            $this->state?->save($this->position);
        }
    }

    /** An answer that is an event stream. Redirects are followed. */
    private function open(): Answer
    {
        $deadline = now() + $this->timeout;
        $headers = ['Accept: text/event-stream', 'Cache-Control: no-cache'];
        if ($this->position !== '') {
            $headers[] = "Last-Event-ID: $this->position";
        }
        $to = $this->url;
        for ($redirects = 0; $redirects <= MAX_REDIRECTS; $redirects++) {
            $answer = new Answer('GET', $to, [...$headers, ...$this->url->authorization($to)], '', $deadline, 0);
            if (!in_array($answer->status, [301, 302, 303, 307, 308], true)) {
                return $this->checked($answer, $deadline);
            }
            $answer->close();
            $to = $to->follow($answer->headers['location'] ?? '') ?? throw new Refused("HTTP $answer->status leads nowhere");
        }
        throw new Refused('more than ' . MAX_REDIRECTS . ' redirects');
    }

    private function checked(Answer $answer, float $deadline): Answer
    {
        if (intdiv($answer->status, 100) === 2) {
            $type = $answer->headers['content-type'] ?? '';
            if ($answer->status === 200 && preg_match('~^text/event-stream\s*(;|$)~i', $type)) {
                return $answer;
            }
            throw new Refused("HTTP $answer->status with the content type '$type' is no event stream: is it an agent?");
        }
        $said = $answer->said($answer->body(MAX_ERROR_BYTES, $deadline));
        throw $answer->passes() ? new Later($said, $answer->retryAfter()) : new Refused("the agent refuses: $said");
    }

    /** Reads a stream to its end, which is an exception. Returns false when the handler has enough. */
    private function follow(Answer $answer): bool
    {
        $parser = new Parser();
        $opened = now();
        $silentAt = $opened + $this->heartbeat;
        while (true) {
            $bytes = $answer->read(min($silentAt, now() + SAVE_INTERVAL));
            if ($bytes === '') {
                throw new Later('the agent ended the stream');
            }
            if ($bytes === null && now() >= $silentAt) {
                throw new Later('the agent was silent for too long');
            }
            foreach ($parser->feed($bytes ?? '') as $block) {
                if (!$this->take($block)) {
                    return false;
                }
                $this->state?->saveSometimes($this->position);
            }
            $this->state?->saveSometimes($this->position);
            if ($bytes !== null) {
                $silentAt = now() + $this->heartbeat; // after handling: waiting for the agent counts, not the handler
            }
            if (now() - $opened > LIVELY_SECONDS) {
                $this->backoff->reset();
            }
        }
    }

    /** Handles a block, and then moves the position. Returns whether to go on. */
    private function take(Block $block): bool
    {
        $position = $block->id ?? $this->position;
        if ($block->id !== null && !is_event_id($block->id)) {
            throw new Refused("the stream has the id '" . substr($block->id, 0, 40) . "', which is no event id");
        }
        $more = true;
        if (in_array($block->event, ['insert', 'update', 'delete', 'reset', 'live'], true)) {
            $more = ($this->handle)($position, $block->event, $this->operation($block, $position));
            $this->backoff->reset();
        } elseif (($block->event !== '' || $block->data !== null) && !$this->told) {
            $this->told = true;
            tell("skipping events of unknown names, such as '" . substr($block->event, 0, 40) . "'");
        }
        $this->position = $position;
        return $more;
    }

    /** The fields of an operation, null for reset and live. */
    private function operation(Block $block, string $position): ?array
    {
        if ($block->event === 'reset' || $block->event === 'live') {
            return null;
        }
        try {
            $fields = json_object($block->data ?? '');
            return [
                'type' => text($fields, 'type'),
                'object' => text($fields, 'id'),
                'parents' => parents($fields),
                'timestamp' => utc(text($fields, 'timestamp')),
            ];
        } catch (Invalid $error) {
            throw new Refused("the operation $position cannot be read: {$error->getMessage()}");
        }
    }
}

function is_event_id(string $text): bool
{
    return preg_match('/^(?:[0-9]{1,13}|[0-9a-f]{24})$/D', $text) === 1;
}

function names(string $flag, string $given): string
{
    if ($given !== '' && in_array('', explode(',', $given), true)) {
        usage("--$flag: give names with a comma between them, none of them empty");
    }
    return $given;
}

Signals::watch();
$flags = flags(array_slice($argv, 1), [
    'url' => 'http://localhost:8042', 'types' => '', 'parents' => '', 'start' => '', 'state' => '', 'count' => '0',
    'json' => false, 'heartbeat-timeout' => '40', 'timeout' => '30', 'backoff' => '1,30',
]);
$filters = array_filter([
    'types' => strtolower(names('types', $flags['types'])),
    'parents' => names('parents', $flags['parents']),
], fn (string $listed): bool => $listed !== '');
$url = Address::parse($flags['url'], ['http', 'https'], (string) getenv('OPLOG_PASSWORD'))
    ?? usage('--url: it must be http://host:port or https://host:port');
if ($flags['start'] !== '' && !is_event_id($flags['start'])) {
    usage('--start: give an event id (up to 13 digits, or 24 lower-case hexadecimal digits)');
}
if (!preg_match('/^[0-9]{1,15}$/D', $flags['count'])) {
    usage('--count: give a number of operations; 0: it does not end by itself');
}
$heartbeat = seconds('heartbeat-timeout', $flags['heartbeat-timeout']);
$timeout = seconds('timeout', $flags['timeout']);
$backoff = Backoff::of($flags['backoff']);
$left = (int) $flags['count'];
$handle = function (string $position, string $event, ?array $operation) use (&$left, $flags): bool {
    $line = match (true) {
        $flags['json'] => json_encode(['id' => $position, 'event' => $event] + ($operation ?? []), JSON_OUT),
        $operation === null => $event,
        default => "$event {$operation['type']}/{$operation['object']} [" . implode(' ', $operation['parents']) . ']',
    };
    for ($line .= "\n"; $line !== ''; $line = substr($line, $written)) {
        $written = @fwrite(STDOUT, $line) ?: throw new Refused('standard output cannot be written');
    }
    return $operation === null || --$left !== 0;
};
if (@fstat(STDOUT) === false) { // the next file opened would take its place
    fail(1, 'standard output is closed');
}
$state = $flags['state'] === '' ? null : new StateFile($flags['state']);
$parameters = http_build_query(['checkpoint' => 1] + $filters, '', '&');
(new Consumer($url->ops($parameters), $flags['start'], $state, $timeout, $heartbeat, $backoff, $handle))->run();
