<?php

declare(strict_types=1);

// Loads the classes of this package without Composer.
spl_autoload_register(function (string $class): void {
    $path = __DIR__ . '/' . strtr(substr($class, strlen('Oplog\\')), '\\', '/') . '.php';
    if (str_starts_with($class, 'Oplog\\') && is_file($path)) {
        require $path;
    }
});
